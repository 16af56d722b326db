//! What the operator is told, held against the model of the APIs on random clusters.
//!
//! `POLICY_CLUSTERS` is how many clusters (25), `POLICY_SEED` where their seeds begin (0).

#![expect(clippy::unwrap_used, reason = "a test may fail where it stands")]

#[path = "rows/asked.rs"]
mod asked;

use asked::{load, question, setting};
use diagnose::policy::{self, Decision, Reason};
use policy_model::Why;
use policy_model::random::{self, Shape};

/// Whether both give the same decision for the same reason. Where several rules allow, any of them is a reason.
fn agree(model: &policy_model::Decision, told: &Decision) -> bool {
    let same_reason = match (&model.why, &told.reason) {
        (Why::NoPod, Reason::NoPod)
        | (Why::Itself, Reason::Itself)
        | (Why::OwnNode, Reason::OwnNode)
        | (Why::Default, Reason::Default) => true,
        (Why::Isolated(model), Reason::Isolated { policies, .. }) => {
            let mut model: Vec<_> = model.iter().map(|one| (&*one.namespace, &*one.name)).collect();
            let mut told: Vec<_> = policies.iter().map(|one| (&*one.namespace, &*one.name)).collect();
            model.sort_unstable();
            told.sort_unstable();
            model == told
        }
        (Why::Rules(rules), Reason::Rule(told)) => rules.iter().any(|rule| {
            let policy = &rule.policy;
            (policy.kind, &*policy.namespace, &*policy.name, rule.index)
                == (told.policy.kind, &*told.policy.namespace, &*told.policy.name, told.index)
        }),
        _ => false,
    };
    model.allowed == told.allowed && same_reason
}

#[test]
fn check_agrees_with_the_model_on_random_clusters() {
    let first = setting("POLICY_SEED", 0);
    let mut asked = 0;
    for seed in first..first + setting("POLICY_CLUSTERS", 25) {
        let objects = random::cluster(seed, Shape::SMALL);
        let (model, cluster) = (policy_model::Cluster::new(&objects), load(&objects));
        for traffic in random::traffic(&model) {
            let verdict = policy_model::verdict(&model, &traffic).unwrap();
            let told = policy::check(&cluster, &question(&traffic)).unwrap();
            let family = if traffic.v6 { "IPv6" } else { "IPv4" };
            let answer = told.answers.iter().find(|answer| answer.family == Some(family)).unwrap();
            assert!(
                agree(&verdict.egress, &answer.egress) && agree(&verdict.ingress, &answer.ingress),
                "seed {seed}: {traffic}\nmodel: {verdict}\ntold: {answer:#?}"
            );
            asked += 1;
        }
    }
    println!("{asked} connections");
    assert!(asked > 0);
}
