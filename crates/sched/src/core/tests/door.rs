//! The door: who waits there, for what, in which order, and for how long.

use super::*;

fn arrive(rig: &mut Rig, id: u64, job: u64, residue: Bytes) -> TenantId {
    if !rig.core.jobs.contains(JobId(job)) {
        rig.job(job, Terms::default());
    }
    let tenant = TenantId(id);
    rig.tell(Event::Arrived { tenant, job: JobId(job), gpu: GpuId(0), residue });
    tenant
}

fn admitted(rig: &Rig) -> Vec<u64> {
    rig.said(0.0, |action| match action {
        Action::Admit { tenant } => Some(tenant.0),
        _ => None,
    })
}

fn refused(rig: &Rig) -> Vec<(u64, Short)> {
    rig.said(0.0, |action| match action {
        Action::Refuse { tenant, why } => Some((tenant.0, *why)),
        _ => None,
    })
}

/// Who was told last what place it has, for what it waits, and for how long.
fn queued(rig: &Rig) -> Vec<(u64, u32, Option<Span>, Short)> {
    rig.said(0.0, |action| match action {
        Action::Queue { tenant, place, forecast, why } => Some((tenant.0, *place, *forecast, *why)),
        _ => None,
    })
}

fn leave(rig: &mut Rig, tenant: TenantId) {
    rig.tell(Event::Left(tenant));
    rig.tell(Event::Buried(tenant));
}

#[test]
fn a_number_that_is_taken_or_too_large_is_refused() {
    let mut rig = Rig::new(settings());
    let largest = crate::core::NUMBER_MAX;
    arrive(&mut rig, 1, 1, Bytes::ZERO);
    arrive(&mut rig, 1, 1, Bytes::ZERO);
    arrive(&mut rig, largest + 1, 1, Bytes::ZERO);
    arrive(&mut rig, u64::MAX, 1, Bytes::ZERO);
    let malformed = Short::Malformed;
    assert_eq!(refused(&rig), [(1, malformed), (largest + 1, malformed), (u64::MAX, malformed)]);
    // Nor can it come back before what it had is free.
    rig.tell(Event::Left(TenantId(1)));
    arrive(&mut rig, 1, 1, Bytes::ZERO);
    assert_eq!(refused(&rig).len(), 4);
    rig.tell(Event::Buried(TenantId(1)));
    arrive(&mut rig, 1, 1, Bytes::ZERO);
    assert_eq!(admitted(&rig), [1, 1]);
}

#[test]
fn whoever_could_never_come_in_is_refused() {
    let mut rig = Rig::new(Settings { headroom: Bytes::from_gib(1), ..settings() });
    rig.job(1, Terms { memory_max: Some(Bytes::from_gib(2)), ..Terms::default() });
    arrive(&mut rig, 1, 1, Bytes::from_gib(3));
    arrive(&mut rig, 2, 2, Bytes::from_gib(15));
    rig.tell(Event::Arrived { tenant: TenantId(3), job: JobId(99), gpu: GpuId(0), residue: Bytes::ZERO });
    rig.tell(Event::Arrived { tenant: TenantId(4), job: JobId(1), gpu: GpuId(9), residue: Bytes::ZERO });
    let gib = Bytes::from_gib;
    assert_eq!(
        refused(&rig),
        [
            (1, Short::Limit { wanted: gib(3), limit: gib(2) }),
            (2, Short::Device { wanted: gib(15), usable: gib(15) }),
            (3, Short::Unknown),
            (4, Short::Unknown),
        ]
    );
    arrive(&mut rig, 5, 1, Bytes::from_gib(2));
    arrive(&mut rig, 6, 2, Bytes::from_mib(12 * 1024 + 1023));
    assert_eq!(admitted(&rig), [5, 6]);
}

#[test]
fn the_forecast_at_the_door_is_how_long_others_stayed_by_how_many_are_before() {
    let mut rig = Rig::new(Settings { tenants_max: 2, ..settings() });
    let (a, b) = (rig.tenant(1, 1, 0, 0), rig.tenant(2, 2, 0, 0));
    arrive(&mut rig, 3, 3, Bytes::ZERO);
    assert_eq!(queued(&rig), [(3, 1, None, Short::Tenants)], "nobody has left yet");
    rig.until(8.0);
    leave(&mut rig, a);
    assert_eq!(admitted(&rig), [1, 2, 3]);
    arrive(&mut rig, 4, 4, Bytes::ZERO);
    arrive(&mut rig, 5, 5, Bytes::ZERO);
    let (told, half) = (queued(&rig), |secs: u64| Some(Span::from_millis(secs * 500)));
    assert_eq!(told[1..], [(4, 1, half(8), Short::Tenants), (5, 2, half(16), Short::Tenants)]);
    // Three quarters of what was known, and one of what was seen: 8 s and 16 s.
    rig.until(16.0);
    leave(&mut rig, b);
    assert_eq!(admitted(&rig), [1, 2, 3, 4]);
    assert_eq!(queued(&rig).last(), Some(&(5, 1, half(10), Short::Tenants)), "it moved up, and was told");
}

#[test]
fn with_nobody_inside_nothing_is_known_of_how_long_it_takes() {
    let mut rig = Rig::new(settings());
    let a = rig.tenant(1, 1, 0, 0);
    rig.until(5.0);
    leave(&mut rig, a);
    rig.tell(Event::Settings(Box::new(Settings { tenants_max: 0, ..settings() })));
    arrive(&mut rig, 2, 2, Bytes::ZERO);
    assert_eq!(queued(&rig), [(2, 1, None, Short::Tenants)]);
}

#[test]
fn a_higher_priority_comes_first_also_if_it_is_given_at_the_door() {
    let mut rig = Rig::new(Settings { tenants_max: 1, ..settings() });
    let a = rig.tenant(1, 1, 0, 0);
    let second = arrive(&mut rig, 2, 2, Bytes::ZERO);
    arrive(&mut rig, 3, 3, Bytes::ZERO);
    rig.job(4, Terms { priority: Priority::High, ..Terms::default() });
    arrive(&mut rig, 4, 4, Bytes::ZERO);
    assert_eq!(queued(&rig).last().map(|told| (told.0, told.1)), Some((4, 1)));
    rig.job(3, Terms { priority: Priority::Realtime, ..Terms::default() });
    for leaves in [a, TenantId(3), TenantId(4)] {
        leave(&mut rig, leaves);
    }
    assert_eq!(admitted(&rig), [1, 3, 4, 2]);
    leave(&mut rig, second);
    assert!(rig.core.gpu_of(GpuId(0)).door.is_empty());
}

#[test]
fn a_context_that_leaves_the_largest_just_enough_is_let_in() {
    let mut rig = Rig::new(settings());
    rig.busy(1, 1, 0, 15);
    arrive(&mut rig, 2, 2, Bytes::from_gib(1));
    assert_eq!(admitted(&rig), [1, 2]);
    arrive(&mut rig, 3, 3, Bytes(1));
    assert_eq!(queued(&rig), [(3, 1, None, Short::Context)]);
}

#[test]
fn whoever_waits_for_its_own_job_keeps_no_other_job_waiting() {
    let mut rig = Rig::new(settings());
    rig.job(1, Terms { memory_max: Some(Bytes::from_gib(2)), ..Terms::default() });
    let a = rig.tenant(1, 1, 0, 1);
    arrive(&mut rig, 2, 1, Bytes::from_mib(1536));
    let limit = Short::Limit { wanted: Bytes::from_mib(2560), limit: Bytes::from_gib(2) };
    assert_eq!(queued(&rig), [(2, 1, None, limit)]);
    arrive(&mut rig, 3, 3, Bytes::from_mib(512));
    assert_eq!(admitted(&rig), [1, 3]);
    leave(&mut rig, a);
    assert_eq!(admitted(&rig), [1, 3, 2]);
}

#[test]
fn whose_job_may_have_less_than_before_waits_at_the_door_again() {
    let mut rig = Rig::new(settings());
    rig.busy(1, 1, 0, 8);
    rig.busy(2, 2, 0, 8);
    rig.until(1.0);
    arrive(&mut rig, 3, 3, Bytes::from_gib(2));
    assert_eq!(admitted(&rig), [1, 2], "room has to be made first");
    rig.job(3, Terms { memory_max: Some(Bytes::from_gib(1)), ..Terms::default() });
    rig.until(5.0);
    assert_eq!(admitted(&rig), [1, 2]);
    assert_eq!(rig.core.describe(TenantId(3), rig.now).unwrap().state, State::Queued);
    rig.job(3, Terms::default());
    rig.until(10.0);
    assert_eq!(admitted(&rig), [1, 2, 3]);
}

#[test]
fn contexts_to_come_are_taken_to_be_as_large_as_those_that_are_there() {
    let mut rig = Rig::new(settings());
    rig.gpu(1, 16);
    let place = |rig: &mut Rig, ticket: u64| {
        let (ticket, among) = (TicketId(ticket), Vec::new());
        rig.tell(Event::Place { ticket, job: JobId(1), count: 1, among, bytes: Bytes::ZERO, residue: None });
        let said = rig.said(0.0, |action| match action {
            Action::Place { why, .. } => Some(why.clone()),
            _ => None,
        });
        said.last().unwrap().clone()
    };
    let said = place(&mut rig, 1);
    assert!(said.contains("a context of 0.51 GiB fits"), "{said}");
    arrive(&mut rig, 1, 1, Bytes::from_gib(1));
    arrive(&mut rig, 2, 2, Bytes::from_gib(2));
    rig.tell(Event::Arrived {
        tenant: TenantId(3),
        job: JobId(2),
        gpu: GpuId(1),
        residue: Bytes::from_gib(6),
    });
    let said = place(&mut rig, 2);
    assert!(said.contains("a context of 3.00 GiB fits"), "{said}");
}

/// Where the next one of a job is sent.
fn sent(rig: &mut Rig, job: u64) -> Vec<GpuId> {
    if !rig.core.jobs.contains(JobId(job)) {
        rig.job(job, Terms::default());
    }
    let (ticket, bytes) = (TicketId(0), Bytes::from_gib(4));
    rig.tell(Event::Place { ticket, job: JobId(job), count: 1, among: Vec::new(), bytes, residue: None });
    let last = rig.diary.iter().rev().find_map(|(_, action)| match action {
        Action::Place { gpus, .. } => Some(gpus.clone()),
        _ => None,
    });
    last.expect("a question has an answer")
}

#[test]
fn a_burst_of_jobs_that_have_not_come_yet_is_spread() {
    let mut rig = Rig::new(settings());
    rig.gpu(1, 16);
    rig.gpu(2, 16);
    let mut counts = [0; 3];
    for job in 1..=9 {
        counts[usize::from(sent(&mut rig, job)[0].0)] += 1;
    }
    assert_eq!(counts, [3, 3, 3]);
}

#[test]
fn who_came_is_not_expected_any_more_nor_who_is_over_or_late() {
    let mut rig = Rig::new(settings());
    rig.gpu(1, 16);
    assert_eq!(sent(&mut rig, 1), [GpuId(0)]);
    assert_eq!(sent(&mut rig, 2), [GpuId(1)]);
    // The first comes and is idle; the second ends before it came: only the first is anywhere.
    rig.tenant(1, 1, 0, 4);
    rig.tell(Event::JobOver(JobId(2)));
    assert_eq!(sent(&mut rig, 3), [GpuId(1)]);
    assert_eq!(sent(&mut rig, 4), [GpuId(0)], "the third is on its way to the other");
    rig.until(61.0);
    assert_eq!(sent(&mut rig, 5), [GpuId(1)], "neither came");
}
