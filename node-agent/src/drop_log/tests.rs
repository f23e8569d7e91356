use nix::errno::Errno;

use super::*;

fn logged(prefix: &str, packet: Vec<u8>) -> Logged {
    Logged {
        prefix: prefix.to_owned(),
        link: None,
        packet,
    }
}

/// UDP from 10.0.0.1 to 10.0.0.2, ports 1024 and 53.
fn packet() -> Vec<u8> {
    let mut packet = vec![0; 28];
    packet[0] = 0x45;
    packet[9] = crate::packet::UDP;
    packet[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    packet[20..24].copy_from_slice(&[4, 0, 0, 53]);
    packet
}

#[test]
fn a_dropped_packet_is_read_with_its_reason_and_as_its_flow() {
    let (there, back) = (
        "10.0.0.1:1024 > 10.0.0.2:53 UDP",
        "10.0.0.2:53 > 10.0.0.1:1024 UDP",
    );
    for reason in DropReason::ALL {
        for (suffix, flow) in [("", there), (" reply", back)] {
            let entry = logged(&format!("tweed {reason}{suffix}: "), packet());
            let read = Drop::read(&entry).unwrap();
            assert_eq!((read.reason, &*read.flow.to_string()), (*reason, flow));
        }
    }
}

/// A kernel without nfnetlink_log answers EINVAL, one without memory ENOMEM.
#[test]
fn only_a_group_that_another_program_has_is_called_taken() {
    for (errno, kind) in [
        (Errno::EPERM, ProblemKind::PolicyLogTaken),
        (Errno::EBUSY, ProblemKind::PolicyLogTaken),
        (Errno::EINVAL, ProblemKind::PolicyLogUnavailable),
        (Errno::ENOMEM, ProblemKind::PolicyLogUnavailable),
    ] {
        let error = tweed_netlink::Error {
            operation: "listen to",
            object: "log group 116".to_owned(),
            cause: errno.into(),
        };
        let problem = not_opened(&error);
        assert_eq!(
            (problem.kind, problem.object.as_str()),
            (kind, "log group 116")
        );
    }
}

#[test]
fn what_others_log_to_the_group_and_what_is_no_packet_is_left_out() {
    for prefix in ["", "tweed", "other: ", "tweed policy_accepted: "] {
        assert_eq!(Drop::read(&logged(prefix, packet())), None, "{prefix}");
    }
    let cut = logged("tweed not-enforced: ", vec![0x45; 8]);
    assert_eq!(Drop::read(&cut), None);
}
