use super::*;

fn parse(text: &str) -> Result<Config, CniError> {
    Config::parse(text.as_bytes().to_vec(), &mut CniVersion::LATEST.clone())
}

fn config(rest: &str) -> Config {
    parse(&format!(r#"{{"cniVersion":"1.1.0","name":"tweed"{rest}}}"#)).unwrap()
}

#[test]
fn what_is_no_object_is_code_6() {
    let deep = "[".repeat(200_000);
    for text in [
        "",
        " ",
        "null",
        "[]",
        "1",
        "{",
        r#"{"name":"a"} x"#,
        "\u{0}\u{1}",
        &deep,
    ] {
        assert_eq!(parse(text).unwrap_err().code, 6);
    }
    assert_eq!(
        Config::parse(vec![0xff, 0xfe], &mut CniVersion::LATEST.clone())
            .unwrap_err()
            .code,
        6
    );
    assert_eq!(parse(r#"{"cniVersion":1,"name":"a"}"#).unwrap_err().code, 6);
}

#[test]
fn version_comes_before_name() {
    assert_eq!(parse(r#"{"name":"../x"}"#).unwrap_err().code, 1);
    for name in [r#""../x""#, r#""""#, "null", "7", r#""a/b""#] {
        let error = parse(&format!(r#"{{"cniVersion":"1.0.0","name":{name}}}"#)).unwrap_err();
        assert_eq!(error.code, 7, "{name}");
        assert!(error.msg.contains("name"), "{error}");
    }
}

#[test]
fn an_error_after_the_version_is_answered_in_it() {
    let mut spoken = CniVersion::LATEST;
    let bytes = br#"{"cniVersion":"0.4.0"}"#.to_vec();
    assert!(Config::parse(bytes, &mut spoken).is_err());
    assert_eq!(spoken, CniVersion::V0_4_0);
}

#[test]
fn of_a_key_that_is_there_twice_the_last_holds() {
    let config = config(r#","mtu":1,"mtu":2"#);
    assert_eq!(config.typed::<u32>("mtu"), Ok(Some(2)));
}

#[test]
fn ipam_types_that_name_another_file_are_code_7() {
    for ipam in [
        "",
        r#","ipam":{}"#,
        r#","ipam":null"#,
        r#","ipam":[]"#,
        r#","ipam":{"type":""}"#,
        r#","ipam":{"type":"../../sbin/x"}"#,
        r#","ipam":{"type":".."}"#,
        r#","ipam":{"type":"a\u0000b"}"#,
        r#","ipam":{"type":5}"#,
    ] {
        let error = config(ipam).ipam_type().unwrap_err();
        assert_eq!(error.code, 7, "{ipam}");
        assert!(error.msg.contains("ipam"), "{error}");
    }
    assert_eq!(
        config(r#","ipam":{"type":"host-local"}"#).ipam_type(),
        Ok("host-local".to_owned())
    );
}

#[test]
fn unknown_keys_are_told_from_the_protocols() {
    let config = config(r#","mtuu":1,"mtu":2,"cni.dev/x":1,"runtimeConfig":{},"args":{}"#);
    assert_eq!(config.unknown_keys(&["mtu"]).collect::<Vec<_>>(), ["mtuu"]);
}

#[test]
fn a_null_list_is_no_list_and_an_empty_one_is() {
    assert_eq!(config("").valid_attachments(), Ok(None));
    assert_eq!(
        config(r#","cni.dev/valid-attachments":null"#).valid_attachments(),
        Ok(None)
    );
    assert_eq!(
        config(r#","cni.dev/attachments":[]"#).valid_attachments(),
        Ok(Some(vec![]))
    );
    let listed = config(r#","cni.dev/valid-attachments":[{"containerID":"c1","ifname":"eth0"}]"#);
    let list = listed.valid_attachments().unwrap().unwrap();
    assert_eq!(
        (list[0].container_id.as_str(), list[0].ifname.as_str()),
        ("c1", "eth0")
    );
    let broken = config(r#","cni.dev/valid-attachments":[{"containerID":"c1"}]"#);
    assert_eq!(broken.valid_attachments().unwrap_err().code, 7);
}

#[test]
fn asked_for_addresses_are_ranked() {
    let from_env = CniArgs {
        ips: vec!["10.0.0.3".parse().unwrap()],
        ..CniArgs::default()
    };
    let ips = |rest: &str| config(rest).requested_ips(&from_env).unwrap();
    let only = |text: &str| vec![text.parse::<IpAddr>().unwrap()];
    assert_eq!(ips(""), only("10.0.0.3"));
    assert_eq!(
        ips(r#","args":{"cni":{"ips":["10.0.0.2/24"]}}"#),
        only("10.0.0.2")
    );
    assert_eq!(
        ips(r#","args":{"cni":{"ips":["10.0.0.2"]}},"runtimeConfig":{"ips":["10.0.0.1"]}"#),
        only("10.0.0.1")
    );
    for bad in [
        r#","runtimeConfig":{"ips":["x"]}"#,
        r#","runtimeConfig":{"ips":7}"#,
        r#","args":{"cni":{"ips":[1]}}"#,
    ] {
        let error = config(bad).requested_ips(&CniArgs::default()).unwrap_err();
        assert_eq!(error.code, 7);
        assert!(error.msg.contains("ips"), "{error}");
    }
}

#[test]
fn a_mac_of_the_runtime_is_checked() {
    let mac = |text: &str| config(text).requested_mac();
    assert_eq!(
        mac(r#","runtimeConfig":{"mac":"02:00:00:00:00:01"}"#),
        Ok(Some(Mac([2, 0, 0, 0, 0, 1])))
    );
    assert_eq!(mac(r#","runtimeConfig":{"mac":""}"#), Ok(None));
    for bad in [
        r#""x""#,
        "7",
        r#""01:00:5e:00:00:01""#,
        r#""00:00:00:00:00:00""#,
    ] {
        let error = mac(&format!(r#","runtimeConfig":{{"mac":{bad}}}"#)).unwrap_err();
        assert_eq!(error.code, 7, "{bad}");
        assert!(error.msg.starts_with("runtimeConfig.mac: "), "{error}");
        let error = mac(&format!(r#","args":{{"cni":{{"mac":{bad}}}}}"#)).unwrap_err();
        assert_eq!(error.code, 7, "{bad}");
        assert!(error.msg.starts_with("args.cni.mac: "), "{error}");
    }
    let both = |first: &str| {
        let args = r#""args":{"cni":{"mac":"02:00:00:00:00:02"}}"#;
        mac(&format!(r#","runtimeConfig":{{"mac":"{first}"}},{args}"#))
    };
    assert_eq!(both(""), Ok(Some(Mac([2, 0, 0, 0, 0, 2]))));
    assert_eq!(both("02:00:00:00:00:01"), Ok(Some(Mac([2, 0, 0, 0, 0, 1]))));
}
