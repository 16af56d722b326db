use super::*;

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn rules(identity: &str) -> Rules {
    Rules::new(ElectionSettings::new("ns", identity))
}

fn lease(holder: &str, renew: &str, version: &str) -> Lease {
    let mut lease = Lease::default();
    lease.metadata.uid = "u".into();
    lease.metadata.resource_version = version.into();
    lease.spec.holder_identity = Some(holder.into());
    lease.spec.renew_time = Some(renew.into());
    lease.spec.lease_duration_seconds = Some(137);
    lease
}

#[test]
fn an_absent_lease_is_created_and_renewed() {
    let mut rules = rules("a");
    assert_eq!(rules.next(s(0)), Action::Wait(None));
    rules.observe(None, s(1));
    assert_eq!(rules.next(s(1)), Action::Create);
    assert_eq!(rules.claim(true, "T").lease_transitions, Some(0));
    rules.written(lease("a", "T", "1"), s(1), s(2));
    assert_eq!(rules.standing(), &Standing::Leader);
    assert_eq!(rules.next(s(2)), Action::Wait(Some(s(27))));
    assert_eq!(rules.next(s(27)), Action::Write { version: "1".into(), take: false });
}

#[test]
fn anothers_lease_is_respected_until_it_has_not_changed_for_its_duration() {
    let mut rules = rules("b");
    rules.observe(Some(lease("a", "t1", "1")), s(10));
    assert_eq!(rules.standing(), &Standing::Standby { holder: Some("a".into()) });
    assert_eq!(rules.next(s(11)), Action::Wait(Some(s(147))));
    rules.observe(Some(lease("a", "t2", "2")), s(40));
    assert_eq!(rules.next(s(147)), Action::Wait(Some(s(177))));
    assert_eq!(rules.next(s(177)), Action::Write { version: "2".into(), take: true });
    let claim = rules.claim(true, "T");
    assert_eq!((claim.lease_transitions, claim.acquire_time.as_deref()), (Some(1), Some("T")));
    rules.failed(Class::Conflict, s(177));
    assert_eq!(rules.next(s(177)), Action::Wait(Some(s(178))));
}

#[test]
fn a_lease_given_up_is_taken_at_once() {
    let mut rules = rules("b");
    rules.observe(Some(lease("a", "t1", "1")), s(10));
    rules.observe(Some(lease("", "t1", "2")), s(20));
    assert_eq!(rules.next(s(20)), Action::Write { version: "2".into(), take: true });
}

#[test]
fn leadership_ends_when_it_cannot_be_renewed() {
    let mut rules = rules("a");
    rules.observe(None, s(0));
    rules.written(lease("a", "T", "1"), s(0), s(1));
    let mut now = s(26);
    loop {
        let action = rules.next(now);
        if rules.standing() != &Standing::Leader {
            break;
        }
        match action {
            Action::Write { .. } => rules.failed(Class::Transient, now),
            Action::Wait(Some(until)) => now = until,
            other => panic!("{other:?} at {now:?}"),
        }
    }
    assert_eq!(now, s(107));
}

#[test]
fn a_leader_deposed_steps_down_at_once_and_late_echoes_do_not_depose() {
    let mut rules = rules("a");
    rules.observe(None, s(0));
    rules.written(lease("a", "t5", "5"), s(0), s(1));
    rules.observe(Some(lease("b", "t2", "2")), s(2));
    assert_eq!(rules.standing(), &Standing::Leader);
    rules.observe(Some(lease("b", "t6", "6")), s(3));
    assert_eq!(rules.standing(), &Standing::Standby { holder: Some("b".into()) });
    assert_eq!(rules.resign(), None);
}

#[test]
fn a_deleted_lease_ends_leadership_and_is_made_again() {
    let mut rules = rules("a");
    rules.observe(None, s(0));
    rules.written(lease("a", "t", "1"), s(0), s(1));
    rules.observe(None, s(5));
    assert_eq!(rules.standing(), &Standing::Standby { holder: None });
    assert_eq!(rules.next(s(26)), Action::Create);
}
