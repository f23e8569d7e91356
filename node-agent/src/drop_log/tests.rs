use super::*;

fn logged(prefix: &str, packet: Vec<u8>) -> Logged {
    Logged {
        prefix: prefix.to_owned(),
        packet,
    }
}

/// UDP from 10.0.0.1 to 10.0.0.2, ports 1024 and 53.
fn packet() -> Vec<u8> {
    let mut packet = vec![0; 28];
    packet[0] = 0x45;
    packet[9] = packet::UDP;
    packet[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    packet[20..24].copy_from_slice(&[4, 0, 0, 53]);
    packet
}

#[test]
fn a_dropped_packet_is_read_with_its_direction_and_as_its_flow() {
    for (prefix, word, flow) in [
        (
            "tweed policy_dropped_in: ",
            "ingress",
            "10.0.0.1:1024 > 10.0.0.2:53 UDP",
        ),
        (
            "tweed policy_dropped_out: ",
            "egress",
            "10.0.0.1:1024 > 10.0.0.2:53 UDP",
        ),
        (
            "tweed policy_dropped_out reply: ",
            "egress",
            "10.0.0.2:53 > 10.0.0.1:1024 UDP",
        ),
        (
            "tweed policy_isolated: ",
            "isolated",
            "10.0.0.1:1024 > 10.0.0.2:53 UDP",
        ),
        (
            "tweed policy_isolated reply: ",
            "isolated",
            "10.0.0.2:53 > 10.0.0.1:1024 UDP",
        ),
    ] {
        let read = Drop::read(&logged(prefix, packet())).unwrap();
        assert_eq!((read.word(), read.flow.to_string().as_str()), (word, flow));
    }
}

#[test]
fn what_others_log_to_the_group_and_what_is_no_packet_is_left_out() {
    for prefix in ["", "tweed", "other: ", "tweed policy_accepted: "] {
        assert_eq!(Drop::read(&logged(prefix, packet())), None, "{prefix}");
    }
    let cut = logged("tweed policy_isolated: ", vec![0x45; 8]);
    assert_eq!(Drop::read(&cut), None);
}
