//! A kernel, or a version of nft, that does not take a rule of policy.

use super::Scene;
use super::manifests::default_deny;
use crate::node::Node;
use crate::script::write_script;

/// A program in place of `nft` that refuses the rules of policy.
pub fn nft_that_refuses_policy(node: &Node) -> String {
    let (nft, input) = (node.path("nft"), node.path("nft-input"));
    let script = format!(
        "#!/bin/sh\ncat >{input}\nif grep 'vmap @policy_entry' {input} >&2; then exit 1; fi\n\
         exec nft -f {input}\n",
        input = input.display()
    );
    write_script(&nft, &script);
    nft.display().to_string()
}

#[test]
fn refused_rules_of_policy_are_a_problem_that_names_the_rule_and_the_way_out() {
    let scene = Scene::new(&[]);
    let nft = nft_that_refuses_policy(&scene.node);
    let agent = scene.start(&["--nft", &nft]);
    scene.apply(&[default_deny()]);
    let text = agent.complains("nftables");
    for part in ["meta nfproto vmap @policy_entry", "--policy to off"] {
        assert!(text.contains(part), "{text}");
    }
    scene.apply(&[]);
    agent.ready();
}
