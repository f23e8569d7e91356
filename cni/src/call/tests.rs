use super::*;

fn environment(pairs: &'static [(&str, &str)]) -> impl Fn(&str) -> Option<OsString> {
    move |name: &str| {
        pairs
            .iter()
            .find(|(key, _)| *key == name)
            .map(|(_, value)| OsString::from(value))
    }
}

fn network() -> NetworkName {
    NetworkName::new("tweed").unwrap()
}

#[test]
fn all_that_is_wrong_is_named_at_once() {
    let env = environment(&[("CNI_CONTAINERID", "../x"), ("CNI_ARGS", "a;b=c")]);
    let error = target(&env, &network(), Command::Add).unwrap_err();
    assert_eq!(error.code, 4);
    for variable in ["CNI_CONTAINERID", "CNI_IFNAME", "CNI_NETNS", "CNI_ARGS"] {
        assert!(error.msg.contains(variable), "{error}");
    }
}

#[test]
fn del_needs_container_and_ifname_only() {
    let env = environment(&[
        ("CNI_CONTAINERID", "c1"),
        ("CNI_IFNAME", "eth0"),
        ("CNI_NETNS", ""),
        ("CNI_ARGS", "broken"),
    ]);
    let target = target(&env, &network(), Command::Del).unwrap();
    assert_eq!(target.netns, "");
    assert_eq!(target.args, CniArgs::default());
    assert_eq!(target.attachment.to_string(), "tweed/c1/eth0");
}

#[test]
fn a_variable_that_is_not_utf8_is_code_4() {
    use std::os::unix::ffi::OsStringExt;
    let env = |name: &str| match name {
        "CNI_CONTAINERID" => Some(OsString::from_vec(vec![0xff])),
        "CNI_IFNAME" => Some(OsString::from("eth0")),
        _ => None,
    };
    let error = target(&env, &network(), Command::Del).unwrap_err();
    assert_eq!(error.code, 4);
    assert!(error.msg.contains("CNI_CONTAINERID"), "{error}");
}

#[test]
fn arguments_are_read_as_runtimes_write_them() {
    let args = CniArgs::parse(
        "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=cart-0;\
         K8S_POD_INFRA_CONTAINER_ID=abc;K8S_POD_UID=u;FOO=bar;IP=10.0.0.5/24,fd00::5;\
         MAC=02:00:00:00:00:01",
    )
    .unwrap();
    assert_eq!(
        args.pod,
        Some(PodName {
            namespace: "shop".to_owned(),
            name: "cart-0".to_owned()
        })
    );
    assert_eq!(args.pod_uid.as_deref(), Some("u"));
    assert_eq!(
        args.ips,
        [
            "10.0.0.5".parse::<IpAddr>().unwrap(),
            "fd00::5".parse().unwrap()
        ]
    );
    assert_eq!(args.mac, Some(Mac([2, 0, 0, 0, 0, 1])));
}

#[test]
fn unknown_arguments_need_ignore_unknown() {
    assert!(CniArgs::parse("FOO=bar").unwrap_err().contains("FOO"));
    assert_eq!(
        CniArgs::parse("FOO=bar;IgnoreUnknown=true"),
        Ok(CniArgs::default())
    );
    assert_eq!(CniArgs::parse(""), Ok(CniArgs::default()));
    assert!(CniArgs::parse("IP=no").is_err());
    for mac in ["no", "01:00:5e:00:00:01", "00:00:00:00:00:00"] {
        let refused = CniArgs::parse(&format!("MAC={mac}")).unwrap_err();
        assert!(refused.contains("CNI_ARGS: MAC: "), "{refused}");
    }
    assert!(CniArgs::parse("IgnoreUnknown=perhaps").is_err());
}

#[test]
fn an_empty_mac_asks_for_none_and_a_name_that_is_no_pods_is_refused() {
    assert_eq!(CniArgs::parse("MAC="), Ok(CniArgs::default()));
    for key in ["K8S_POD_NAME", "K8S_POD_NAMESPACE"] {
        let named = |length| format!("{key}={}", "x".repeat(length));
        assert!(CniArgs::parse(&named(253)).is_ok());
        let refused = CniArgs::parse(&named(70_000)).unwrap_err();
        assert!(refused.contains(key) && refused.len() < 100, "{refused}");
    }
}

#[test]
fn commands_are_exact() {
    for command in Command::ALL {
        let text = command.as_str();
        let env = move |_: &str| Some(OsString::from(text));
        assert_eq!(super::command(&env), Ok(command));
    }
    for bad in ["add", "ADD ", "DELETE"] {
        let env = move |_: &str| Some(OsString::from(bad));
        assert_eq!(super::command(&env).unwrap_err().code, 4);
    }
}

#[test]
fn an_empty_search_path_has_no_folders() {
    assert!(cni_path(&|_: &str| None).is_empty());
    let env = |_: &str| Some(OsString::from("/opt/cni/bin::/usr/lib/cni"));
    assert_eq!(
        cni_path(&env),
        [PathBuf::from("/opt/cni/bin"), PathBuf::from("/usr/lib/cni")]
    );
}
