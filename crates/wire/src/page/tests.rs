//! The page between two sides in one process.

use super::*;

#[test]
fn both_sides_see_the_same_words() {
    let daemon = SharedPage::create(7).unwrap();
    let tenant = SharedPage::open(daemon.file().try_clone_to_owned().unwrap()).unwrap();
    assert_eq!(tenant.epoch(), 7);
    assert!(tenant.resident() && !tenant.frozen());

    daemon.set_frozen(true);
    daemon.revoke_residency();
    daemon.set_slice_us(2048);
    assert!(tenant.frozen() && !tenant.resident());
    assert_eq!(tenant.slice_us(), Some(2048));

    daemon.set_memory(8 << 30, 1 << 30, 518 << 20);
    assert_eq!(
        (tenant.limit_bytes(), tenant.others_bytes(), tenant.residue_bytes()),
        (8 << 30, 1 << 30, 518 << 20)
    );
    tenant.set_used_bytes(7);
    assert_eq!(daemon.used_bytes(), 7);

    assert_eq!(tenant.raise_channel_generation(), 1);
    assert_eq!(daemon.channel_generation(), 1);
}

#[test]
fn freezing_twice_is_freezing_once() {
    let page = SharedPage::create(1).unwrap();
    page.set_frozen(true);
    page.set_frozen(true);
    assert!(page.frozen());
    page.set_frozen(false);
    page.set_frozen(false);
    assert!(!page.frozen());
}

#[test]
fn whoever_waits_for_the_thaw_is_woken_by_it() {
    let daemon = SharedPage::create(1).unwrap();
    let tenant = SharedPage::open(daemon.file().try_clone_to_owned().unwrap()).unwrap();
    assert!(!tenant.holds_launches());
    daemon.set_holds_launches();
    assert!(tenant.holds_launches());
    daemon.set_frozen(true);
    let held = std::thread::spawn(move || {
        while tenant.frozen() {
            tenant.wait_while_frozen(tenant.freeze_generation());
        }
    });
    daemon.set_frozen(false);
    daemon.wake_held();
    held.join().unwrap();
}

#[test]
fn a_tenant_that_says_nothing_is_never_idle() {
    let page = SharedPage::create(1).unwrap();
    assert!(!page.is_idle_when_watched());
    assert_eq!((page.idle_since_ns(), page.idle_total_ns(100)), (None, 0));
    assert!(!page.wake(5), "it was awake");
}

#[test]
fn what_could_not_be_told_beforehand_is_told_with_the_work() {
    let page = SharedPage::create(1).unwrap();
    assert!(page.rest(10) && page.is_idle_when_watched());
    assert!(page.take_watch());
    assert!(!page.take_watch(), "it is told already");
    assert!(!page.give_watch_back(), "there is no work yet");
    assert!(page.wake(20));
    assert!(page.rest(30) && page.is_idle_when_watched());
    assert!(page.take_watch());
    assert!(!page.wake(40), "it is about to be told");
    assert!(page.give_watch_back(), "and was not");
    assert!(!page.take_watch());
}

#[test]
fn whoever_is_watched_tells_once() {
    let page = SharedPage::create(1).unwrap();
    assert!(page.rest(10));
    assert!(!page.rest(20), "it is idle since 10");
    assert_eq!(page.idle_since_ns(), Some(10));
    assert_eq!(page.idle_total_ns(25), 15);
    assert!(!page.wake(30), "nobody watches");
    assert_eq!(page.idle_total_ns(1000), 20);

    assert!(page.rest(40));
    assert!(page.is_idle_when_watched());
    assert!(page.wake(50));
    assert!(page.rest(60));
    assert!(!page.wake(70), "it was told already");
    assert_eq!(page.idle_total_ns(1000), 40);

    assert!(page.rest(80));
    assert!(page.is_idle_when_watched());
    page.stop_watching();
    assert!(!page.wake(90));
}

#[test]
fn a_strange_file_is_refused() {
    let zeros = rustix::fs::memfd_create("zeros", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&zeros, 10).unwrap();
    assert!(matches!(SharedPage::open(zeros.try_clone().unwrap()), Err(PageError::Short(10))));
    rustix::fs::ftruncate(&zeros, 4096).unwrap();
    assert!(matches!(SharedPage::open(zeros), Err(PageError::Foreign { magic: 0, .. })));
}

#[test]
fn a_tenant_cannot_shrink_the_page_under_the_daemon() {
    let page = SharedPage::create(1).unwrap();
    assert!(rustix::fs::ftruncate(page.file(), 0).is_err());
}

#[test]
fn a_new_daemons_page_lies_where_the_old_one_was() {
    let old = SharedPage::create(1).unwrap();
    let tenant = SharedPage::open(old.file().try_clone_to_owned().unwrap()).unwrap();
    let word: &Page = &tenant;
    tenant.raise_channel_generation();
    tenant.tell_requests();
    tenant.add_request(1_000, Some(999));
    tenant.note_freeze();
    tenant.note_frozen_wholly();
    tenant.await_warm_ups();
    old.order_warm_up();
    old.expect_warm_up();
    let new = SharedPage::create(2).unwrap();
    tenant.renew(SharedPage::open(new.file().try_clone_to_owned().unwrap()).unwrap()).unwrap();
    assert_eq!((word.epoch(), word.channel_generation()), (2, 0));
    let requests = new.request_times().expect("how long requests took is not forgotten");
    assert_eq!((requests.by_program, requests.times.count, requests.slo_missed), (true, 1, 1));
    assert!(new.awaits_warm_ups() && !word.warm_up_is_expected(monotonic_ns()), "the old one's word");
    new.order_warm_up();
    assert_eq!(word.warm_ups_ordered(), 2, "whoever took the old one's sees another");
    new.note_freeze();
    assert!(new.frozen_wholly(), "its channels are what they were");
    assert_eq!(new.freezes(), 2, "by the old daemon, and by the new one");
    word.raise_channel_generation();
    assert_eq!((old.channel_generation(), new.channel_generation()), (1, 1));
    let again = SharedPage::open(tenant.file().try_clone_to_owned().unwrap()).unwrap();
    assert_eq!(again.epoch(), 2, "its file is the new one's");
}

#[test]
fn a_phase_has_a_name_while_it_lasts_of_which_only_what_is_readable_is_shown() {
    let page = SharedPage::create(1).unwrap();
    page.set_phase_name(b"checkpoint");
    assert_eq!(page.phase_name(), None, "it is in no phase");
    page.set_phases_open(1);
    assert_eq!(page.phase_name().as_deref(), Some("checkpoint"));
    page.set_phase_name(&[b'x'; 100]);
    assert_eq!(page.phase_name(), Some("x".repeat(PHASE_NAME_BYTES)));
    page.set_phase_name(b"a\x1b[2Jb\n");
    assert_eq!(page.phase_name().as_deref(), Some("a[2Jb"));
    page.set_phase_name(b"");
    assert_eq!(page.phase_name(), None);
}
