//! Compared with the reference: a config of host-local works unchanged, and both can
//! use one folder at the same time.

#[cfg(test)]
mod common;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use serde_json::{Value, json};

    use super::common::folder;
    use super::common::program::{Call, call, finish, host_local};

    /// The results of a sequence of ADDs, with a DEL after two of three.
    fn answers(program: Option<&str>, ipam: &Value, extra: &Value, args: &str) -> Vec<Value> {
        let data_dir = folder();
        let mut config = json!({ "cniVersion": "1.0.0", "name": "net", "type": "ptp" });
        config["ipam"] = ipam.clone();
        config["ipam"]["type"] = json!("host-local");
        config["ipam"]["dataDir"] = json!(data_dir.path());
        for (key, value) in extra.as_object().unwrap() {
            config[key] = value.clone();
        }
        let make = |verb, who: &str| {
            let mut call = call(verb, who, &config);
            if let Some(program) = program {
                call.program = program.to_owned();
            }
            call.args = args.to_owned();
            call.make()
        };
        let mut answers = Vec::new();
        for n in 0..12 {
            let who = format!("c{n}");
            let answer = make("ADD", &who);
            answers.push(if answer.success {
                let mut result = answer.result();
                if result["dns"] == json!({}) {
                    result.as_object_mut().unwrap().remove("dns");
                }
                result
            } else {
                // Texts and codes differ: the reference returns 999 for every error.
                json!("refused")
            });
            if n % 3 > 0 {
                make("DEL", &who);
            }
        }
        answers
    }

    #[test]
    #[ignore = "needs the reference host-local: conformance/setup.sh builds it"]
    fn a_config_of_host_local_gives_what_host_local_gives() {
        let configs = [
            json!({ "ranges": [[{ "subnet": "10.1.0.0/29" }]] }),
            json!({ "subnet": "10.1.0.0/29" }),
            json!({ "subnet": "10.1.0.0/29", "rangeStart": "10.1.0.3",
                    "rangeEnd": "10.1.0.5", "gateway": "10.1.0.4" }),
            json!({ "ranges": [[{ "subnet": "10.1.0.0/30" }, { "subnet": "10.2.0.0/30" }],
                               [{ "subnet": "fd00::/125" }]],
                    "routes": [{ "dst": "0.0.0.0/0" }, { "dst": "192.0.2.0/24", "gw": "10.1.0.1" }] }),
            json!({ "subnet": "10.5.0.0/30", "ranges": [[{ "subnet": "fd00::/126" }]],
                    "resolvConf": "/etc/resolv.conf" }),
            json!({ "ranges": [[{ "subnet": "fd00::/64", "rangeStart": "fd00::ff:0" }]] }),
            json!({ "ranges": [[{ "subnet": "10.1.0.0/24" }], [{ "subnet": "10.1.0.0/25" }]] }),
            json!({ "ranges": [[{ "subnet": "10.1.0.1/24" }]] }),
            json!({ "ranges": [] }),
            json!({ "subnet": "10.0.0.0/31" }),
            json!({ "ranges": [[{ "subnet": "10.0.0.0/24" }, { "subnet": "fd00::/64" }]] }),
            json!({ "subnet": "10.0.0.0/24", "rangeStart": "10.0.0.9", "rangeEnd": "10.0.0.8" }),
            json!({ "ranges": [[{ "subnet": "10.1.0.0/28", "gateway": "10.1.0.14" }]] }),
        ];
        let asked = [
            (json!({}), ""),
            (json!({ "runtimeConfig": { "ips": ["10.1.0.5"] } }), ""),
            (json!({ "args": { "cni": { "ips": ["10.1.0.3/24"] } } }), ""),
            (json!({}), "IP=10.1.0.4"),
            (
                json!({ "runtimeConfig": { "ipRanges": [[{ "subnet": "10.77.0.0/29" }]] } }),
                "",
            ),
        ];
        for ipam in &configs {
            for (extra, args) in &asked {
                let ours = answers(None, ipam, extra, args);
                let theirs = answers(Some(&host_local()), ipam, extra, args);
                assert_eq!(ours, theirs, "{ipam} {extra} {args}");
            }
        }
    }

    #[test]
    #[ignore = "needs the reference host-local: conformance/setup.sh builds it"]
    fn both_at_once_in_one_folder_give_no_address_twice() {
        let data_dir = folder();
        let config = json!({
            "cniVersion": "1.0.0", "name": "net", "type": "ptp",
            "ipam": { "type": "x", "subnet": "10.1.0.0/26", "dataDir": data_dir.path() },
        });
        let children: Vec<_> = (0..60)
            .map(|n| {
                let ours = call("ADD", &format!("c{n}"), &config);
                if n % 2 == 0 {
                    ours.start()
                } else {
                    Call {
                        program: host_local(),
                        ..ours
                    }
                    .start()
                }
            })
            .collect();
        let given: HashSet<String> = children
            .into_iter()
            .flat_map(|child| finish(child).addresses())
            .collect();
        assert_eq!(given.len(), 60);
    }
}
