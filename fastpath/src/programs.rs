//! The programs, loaded: attached where a plan says, with their maps as it says.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use aya::maps::lpm_trie::{Key, LpmTrie};
use aya::maps::{HashMap, Map, MapData, MapError};
use aya::{Btf, Ebpf, EbpfLoader, Pod};
use ipnetwork::IpNetwork;
use nix::libc;
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};

use crate::counters::CounterReader;
use crate::error::Error;
use crate::hooks::{self, Hook, Place, maps_dir};
use crate::layout::{LAYOUT, address, prefix};
use crate::plan::{Node, Plan};
use crate::self_test;
use crate::settings::Settings;
use crate::sys;

/// The compiled programs. `build-object.sh` writes it.
pub(crate) const OBJECT: &[u8] = aya::include_bytes_aligned!("bpf/fast_path.o");
/// The kernel's types.
const BTF: &str = "/sys/kernel/btf/vmlinux";
/// What the kernel keeps from programs.
const LOCKDOWN: &str = "/sys/kernel/security/lockdown";
/// The maps that are pinned.
const MAPS: [&str; 5] = ["settings", "flows", "nodes", "links", "counters"];

/// `struct node`
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct NodeValue {
    address: u32,
    link: u32,
    mac: [u8; 6],
    unused: [u8; 2],
}

#[expect(unsafe_code, reason = "the trait says that any bytes are valid")]
// SAFETY: all fields are numbers, without padding between or after them.
unsafe impl Pod for NodeValue {}

/// What a plan has changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changed {
    /// Where programs were attached.
    pub attached: BTreeSet<Place>,
    /// Whether settings or maps were changed by which flows are sent.
    pub ways: bool,
}

/// The programs and their maps.
pub struct Programs {
    dir: PathBuf,
    loaded: Ebpf,
    ids: BTreeMap<Hook, u32>,
    settings: Settings,
    nodes: LpmTrie<MapData, [u8; 16], NodeValue>,
    /// What `nodes` holds.
    known_nodes: BTreeMap<(u32, [u8; 16]), NodeValue>,
    links: HashMap<MapData, u32, u32>,
    /// What `links` holds.
    known_links: BTreeMap<u32, u32>,
    counters: CounterReader,
}

impl Programs {
    /// Loads the programs, with what an earlier run has pinned in `dir`: maps are taken over,
    /// and programs replaced where they are attached. `flows` is the number of directions of
    /// flows that are remembered.
    ///
    /// # Errors
    /// Why there can be no fast path.
    pub fn load(dir: &Path, flows: u32) -> Result<Self, Error> {
        check(dir)?;
        // It takes some MiB, so it is read once.
        let types = Btf::from_sys_fs().map_err(|error| Error::of("the kernel's BTF", &error))?;
        self_test::run(&types)?;
        // Maps of another layout or size are of no use, nor what is attached with them.
        let version = version(flows);
        let earlier = hooks::names(&maps_dir(dir))?;
        if earlier.iter().any(|name| !name.starts_with(&version)) {
            hooks::remove(dir)?;
        }
        hooks::make_dirs(dir)?;
        let mut loader = EbpfLoader::new();
        loader.btf(Some(&types)).map_max_entries("flows", flows);
        for name in MAPS {
            loader.map_pin_path(name, maps_dir(dir).join(format!("{version}{name}")));
        }
        let mut loaded = loader
            .load(OBJECT)
            .map_err(|error| Error::of("the maps", &error))?;
        let ids = hooks::load(&mut loaded)?;
        let settings = match loaded.map("settings") {
            Some(Map::Array(map)) => Settings::map(map.fd())?,
            _ => return Err(no_map("settings")),
        };
        let of = |error: MapError| Error::of("the maps", &error);
        let mut take = |name| loaded.take_map(name).ok_or_else(|| no_map(name));
        let nodes: LpmTrie<_, [u8; 16], NodeValue> = take("nodes")?.try_into().map_err(of)?;
        let links: HashMap<_, u32, u32> = take("links")?.try_into().map_err(of)?;
        let counters = CounterReader::of(take("counters")?)?;
        let entries = nodes.iter().map(|entry| {
            let (key, value) = entry?;
            Ok(((key.prefix_len(), key.data()), value))
        });
        let known_nodes = entries.collect::<Result<_, MapError>>().map_err(of)?;
        let known_links = links.iter().collect::<Result<_, MapError>>().map_err(of)?;
        for place in hooks::pinned(dir)? {
            hooks::replace(&mut loaded, dir, place)?;
        }
        Ok(Self {
            dir: dir.to_owned(),
            loaded,
            ids,
            settings,
            nodes,
            known_nodes,
            links,
            known_links,
            counters,
        })
    }

    /// The settings, to be kept and changed beside this.
    #[must_use]
    pub fn settings(&self) -> Settings {
        self.settings.clone()
    }

    /// Makes everything as planned. What is gone is detached first, and what is new is attached
    /// last. The caller invalidates.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn apply(&mut self, plan: &Plan) -> Result<Changed, Error> {
        let places = plan.places();
        let mut changed = Changed::default();
        for place in hooks::pinned(&self.dir)?.difference(&places) {
            hooks::detach(&self.dir, *place)?;
        }
        changed.ways = self.settings.set(plan);
        self.settings.renew();
        changed.ways |= self.write_nodes(&plan.nodes)?;
        changed.ways |= self.write_links(plan.kinds())?;
        for place in places {
            if self.is_attached(place) {
                continue;
            }
            hooks::detach(&self.dir, place)?;
            if hooks::attach(&mut self.loaded, &self.dir, place)? {
                changed.attached.insert(place);
            }
        }
        Ok(changed)
    }

    fn is_attached(&self, place: Place) -> bool {
        let id = self.ids.get(&place.hook);
        id.is_some_and(|id| hooks::is_attached(place, *id))
    }

    /// Has flows let in further on: call it at least every few seconds.
    pub fn renew(&self) {
        self.settings.renew();
    }

    /// Whether a program is missing where this plan wants one.
    #[must_use]
    pub fn is_damaged(&self, plan: &Plan) -> bool {
        !plan
            .places()
            .into_iter()
            .all(|place| self.is_attached(place))
    }

    fn write_nodes(&mut self, nodes: &BTreeMap<IpNetwork, Node>) -> Result<bool, Error> {
        let wanted = nodes.iter().map(|(network, node)| {
            let key = (prefix(*network), address(network.network()));
            let value = match node {
                Node::Vxlan(ip, mac) => NodeValue {
                    address: u32::from_ne_bytes(ip.octets()),
                    mac: *mac,
                    ..NodeValue::default()
                },
                Node::Direct(link) => NodeValue {
                    link: *link,
                    ..NodeValue::default()
                },
            };
            (key, value)
        });
        let map = &mut self.nodes;
        let written = write(&mut self.known_nodes, wanted.collect(), |key, value| {
            let key = Key::new(key.0, key.1);
            match value {
                Some(value) => map.insert(&key, value, 0),
                None => map.remove(&key),
            }
        });
        written.map_err(|error| Error::of("the map of nodes", &error))
    }

    fn write_links(&mut self, kinds: BTreeMap<u32, u32>) -> Result<bool, Error> {
        let map = &mut self.links;
        let written = write(&mut self.known_links, kinds, |link, kind| match kind {
            Some(kind) => map.insert(link, kind, 0),
            None => map.remove(&link),
        });
        written.map_err(|error| Error::of("the map of links", &error))
    }

    /// What the programs count, to be read beside this.
    #[must_use]
    pub fn counters(&self) -> CounterReader {
        self.counters.clone()
    }
}

/// Has `set` make a map, which holds what is `known`, hold what is `wanted`: it sets the value of
/// a key or, with none, removes it. What is gone is removed first. Whether anything differed.
fn write<K: Ord + Copy, V: PartialEq + Copy>(
    known: &mut BTreeMap<K, V>,
    wanted: BTreeMap<K, V>,
    mut set: impl FnMut(K, Option<V>) -> Result<(), MapError>,
) -> Result<bool, MapError> {
    let is_gone = |key: &K| !wanted.contains_key(key);
    let gone: Vec<K> = known.keys().copied().filter(is_gone).collect();
    let mut differed = false;
    for key in gone {
        set(key, None)?;
        known.remove(&key);
        differed = true;
    }
    for (key, value) in wanted {
        if known.get(&key) != Some(&value) {
            set(key, Some(value))?;
            known.insert(key, value);
            differed = true;
        }
    }
    Ok(differed)
}

/// What the names of pinned maps begin with.
fn version(flows: u32) -> String {
    format!("layout_{LAYOUT}_{flows}_")
}

/// The settings of programs that an earlier run has left attached, until this one has loaded
/// its own: what changes meanwhile counts for them too.
#[must_use]
pub fn pinned_settings(dir: &Path, flows: u32) -> Option<Settings> {
    let path = maps_dir(dir).join(format!("{}settings", version(flows)));
    let map = MapData::from_pin(path).ok()?;
    Settings::map(map.fd()).ok()
}

fn no_map(name: &str) -> Error {
    Error::Refused {
        what: format!("the map {name}"),
        why: "it is not in the object, or of another type".to_owned(),
    }
}

/// What this node lacks, before anything is loaded.
fn check(dir: &Path) -> Result<(), Error> {
    let btf = Path::new(BTF);
    if !btf.exists() {
        return Err(Error::NoBtf(btf.to_owned()));
    }
    // The folder may not be there yet.
    let nearest = dir.ancestors().find(|folder| folder.exists());
    let is_bpffs = nearest.and_then(|folder| statfs(folder).ok());
    if is_bpffs.is_none_or(|found| found.filesystem_type() != BPF_FS_MAGIC) {
        return Err(Error::NoBpffs(dir.to_owned()));
    }
    // The loopback link has index 1 in every network namespace.
    if let Err(error) = sys::tcx_programs(1, true) {
        return Err(match error.raw_os_error() {
            Some(libc::EINVAL) => Error::NoTcx,
            _ => Error::of("a look at programs of links", &error),
        });
    }
    if !may_read_kernel() {
        return Err(Error::NotPermitted(
            "reading the kernel's memory".to_owned(),
        ));
    }
    let lockdown = fs::read_to_string(LOCKDOWN).unwrap_or_default();
    if lockdown.contains("[confidentiality]") {
        return Err(Error::Lockdown);
    }
    Ok(())
}

/// Whether programs of this thread may read the kernel's memory. Where they may not, the
/// verifier refuses them without a word of the right.
fn may_read_kernel() -> bool {
    const CAP_SYS_ADMIN: u64 = 1 << 21;
    const CAP_PERFMON: u64 = 1 << 38;
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let digits = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let rights = digits.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
    rights.is_none_or(|rights| rights & (CAP_PERFMON | CAP_SYS_ADMIN) != 0)
}
