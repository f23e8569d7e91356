//! What plugin, agent, store and installer share, each thing defined once.
//!
//! | module | what is in it |
//! |---|---|
//! | [`attachment`] | the names of an attachment, and the link names and MACs derived from them |
//! | [`mac`], [`family`], [`name`] | link-layer addresses, address families, why a name was refused |
//! | [`ownership`] | the marks by which tweed knows its own links and routes in the kernel |
//! | [`paths`], [`mtu`] | default paths and file names; limits of the MTU |
//! | [`agent_state`] | the files `ready` and `agent.json`, which the agent writes and the plugin reads |
//! | [`agent_socket`] | the protocol of `agent.sock`, on which the agent is asked |
//! | [`instance_lock`] | the lock that one agent of a node holds |
//! | [`leaving`] | the lock of whoever deletes the links of removed pods |
//! | [`netns`], [`uptime`] | which network namespace a process works in; whether a file is older than the boot |
//! | [`atomic_file`] | replacing a file as a whole |
//! | [`regular_file`], [`limits`] | reading files that others can write; how much of each kind |
//! | [`stdin`] | the standard input of a plugin |
//! | [`sysctl`] | the machine-wide sysctls that the agent sets and the uninstaller restores |
//! | [`problem`] | what is wrong on a node, and its cure |
//! | [`object`] | objects of the cluster, as `watch` delivers them and `planner` reads them |
//! | [`keyed`] | the difference between two maps, and its application |
//! | [`version`], [`text`] | versions of state; formatting of lists for people |
//!
//! Something belongs here if two crates need it and neither should depend on the
//! other for it. No module here does I/O but [`agent_socket`], [`atomic_file`],
//! [`instance_lock`], [`leaving`], [`netns`], [`regular_file`], [`stdin`] and [`uptime`]: files, locks and a socket
//! that several programs must treat in exactly the same way. The plugin links this crate, so a
//! dependency that only the agent needs does not belong here.

pub mod agent_socket;
pub mod agent_state;
pub mod atomic_file;
pub mod attachment;
pub mod family;
mod for_root;
pub mod instance_lock;
pub mod keyed;
pub mod leaving;
pub mod limits;
pub mod mac;
pub mod mtu;
pub mod name;
pub mod netns;
pub mod object;
pub mod ownership;
pub mod paths;
pub mod problem;
pub mod regular_file;
pub mod stdin;
pub mod sysctl;
pub mod text;
pub mod uptime;
pub mod version;

pub use for_root::for_root;
