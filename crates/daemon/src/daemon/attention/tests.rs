//! Whoever stays awake does so for what is due, and for no longer than it may.

use super::*;
use std::sync::mpsc;

const MS: Duration = Duration::from_millis(1);
const GPU: GpuId = GpuId(0);
const WHO: TenantId = TenantId(3);

/// Nobody's request is over.
fn no(_: TenantId) -> Sight {
    Sight::Open
}

fn ending(tenant: TenantId, by: Instant) -> Ending {
    Ending { tenant, by, comes: false, is_waited_out: false, was_open: true, seen: None }
}

impl Attention {
    /// Waits for the end of somebody's request, for so long.
    fn awaits(&mut self, within: Duration) -> bool {
        self.awaits_end(GPU, ending(WHO, Instant::now() + within))
    }
}

/// On a machine with processors to spare.
fn attentive() -> Attention {
    Attention { is_possible: true, crowd: Crowd::of_nobody(), ..Attention::new(true) }
}

#[test]
fn nobody_stays_awake_on_a_busy_machine_or_where_it_is_turned_off() {
    let (_say, heard) = mpsc::channel::<u32>();
    let within = Duration::from_micros(200);
    assert!(attentive().awaits(within));
    let mut busy = Attention { crowd: Crowd::of_many(), ..attentive() };
    assert!(!busy.awaits(within));
    assert!(attentive().leaves_room() && !busy.leaves_room());
    let due = Instant::now() + MS;
    let nothing = busy.hear(&heard, due + MS, Some((Time(7), due)), no, |_| panic!("others have to run"));
    assert_eq!(nothing, Err(RecvTimeoutError::Timeout));
    assert!(Instant::now() >= due, "it is waited for, asleep");
    let mut off = Attention { crowd: Crowd::of_nobody(), ..Attention::new(false) };
    assert!(!off.is_possible && !off.leaves_room());
}

#[test]
fn an_end_that_was_to_be_seen_is_told_of_also_where_nobody_had_the_time_to_look() {
    let (_say, heard) = mpsc::channel::<u32>();
    for (sight, told) in [(Sight::Over, true), (Sight::Open, false), (Sight::Unknown, false)] {
        let mut attention = attentive();
        let by = Instant::now() + 100 * MS;
        attention.ends.insert(GPU, Ending { is_waited_out: true, ..ending(WHO, by) });
        assert!(attention.sees_end_of(WHO), "so its word is not heeded");
        std::thread::sleep(110 * MS);
        let noticed = attention.hear(&heard, Instant::now() + MS, None, |_| sight, |_| panic!("nobody goes"));
        assert_eq!(noticed == Ok(Noticed::Over(WHO)), told, "{noticed:?}");
        assert!(!attention.sees_end_of(WHO));
    }
}

/// How many departures may be stayed awake for in that time: for a quarter of it, and two more at first.
fn departures_in(time: Duration) -> u128 {
    time.as_micros() / (4 * standby::AHEAD).as_micros() + 3
}

#[test]
fn what_is_late_counts_as_stayed_awake_for_too() {
    let (_say, heard) = mpsc::channel::<u32>();
    let mut attention = attentive();
    let mut told = 0;
    let begin = Instant::now();
    for number in 0..50 {
        let late = Instant::now();
        attention.hear(&heard, late + MS, Some((Time(number), late)), no, |_| told += 1).unwrap_err();
    }
    let most = departures_in(begin.elapsed());
    assert!((1..=most).contains(&told), "{told} of 50, {most} at most");
}

/// Tries something that needs a thread to wake in time: on a machine with much else to do that takes several.
fn in_time(mut once: impl FnMut() -> Option<()>) {
    (0..200).find_map(|_| once()).expect("a thread that wakes in time now and then");
}

#[test]
fn what_is_due_is_not_slept_through_and_whoever_does_it_is_told_once_just_before() {
    in_time(|| {
        let (say, heard) = mpsc::channel();
        let mut attention = attentive();
        let due = Instant::now() + 5 * MS;
        let (departure, wake) = (Some((Time(7), due)), due + 5 * MS);
        let mut told = None;
        let nothing =
            attention.hear(&heard, wake, departure, no, |until| told = Some((Instant::now(), until)));
        assert_eq!(nothing, Err(RecvTimeoutError::Timeout));
        assert!(Instant::now() >= due);
        let (at, until) = told?;
        assert!(at + standby::AHEAD >= due && until > due, "no earlier than it has to be");
        let again = attention.hear(&heard, wake, departure, no, |_| panic!("it was told"));
        assert_eq!(again, Err(RecvTimeoutError::Timeout));
        say.send(1).unwrap();
        assert_eq!(
            attention.hear(&heard, wake, departure, no, |_| panic!("it was told")),
            Ok(Noticed::Heard(1))
        );
        std::thread::sleep(MS);
        let mut told = None;
        let other = Some((Time(8), Instant::now()));
        attention.hear(&heard, Instant::now() + MS, other, no, |_| told = Some(())).unwrap_err();
        told
    });
}

#[test]
fn what_is_due_all_the_time_is_slept_through_most_of_it() {
    let (_say, heard) = mpsc::channel::<u32>();
    let mut attention = attentive();
    let mut told = 0;
    let begin = Instant::now();
    for number in 0..200 {
        let due = Instant::now() + standby::AHEAD;
        let departure = Some((Time(number), due));
        attention.hear(&heard, due + MS, departure, no, |_| told += 1).unwrap_err();
        assert!(Instant::now() >= due, "it is waited for, awake or not");
    }
    let most = departures_in(begin.elapsed());
    assert!((2..=most).contains(&told), "{told} of 200, {most} at most");
    let within = Duration::from_micros(200);
    std::thread::sleep(MS);
    assert!(!attention.awaits(standby::LONGEST + MS), "requests are long");
    assert!(attention.awaits(within) && !attention.ends.is_empty());
    let another = |gpu: u16| ending(TenantId(gpu.into()), Instant::now() + within);
    let refused = (1..10).any(|gpu| !attention.awaits_end(GpuId(gpu), another(gpu)));
    assert!(refused && attention.ends.len() < 9, "not all the time");
    attention.is_possible = false;
    std::thread::sleep(MS);
    assert!(!attention.awaits(within), "there are too few processors");
}

/// How long this thread was on a processor so far. None where the system does not say.
fn ran() -> Option<Duration> {
    let said = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    said.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

#[test]
fn whoever_waits_for_what_is_not_due_sleeps() {
    let (_say, heard) = mpsc::channel::<u32>();
    let mut attention = attentive();
    let Some(before) = ran() else { return };
    let far = Some((Time(9), Instant::now() + Duration::from_secs(60)));
    for departure in [None, far] {
        let wake = Instant::now() + 100 * MS;
        let nothing = attention.hear(&heard, wake, departure, no, |_| panic!("nothing is due"));
        assert_eq!(nothing, Err(RecvTimeoutError::Timeout));
    }
    // What is due soon is slept through up to just before.
    let due = Instant::now() + 100 * MS;
    attention.hear(&heard, due + MS, Some((Time(1), due)), no, |_| ()).unwrap_err();
    let awake = ran().unwrap_or_default().saturating_sub(before);
    assert!(awake < 20 * MS, "{awake:?} of 300 ms");
}

#[test]
fn what_comes_first_is_waited_for() {
    let (say, heard) = mpsc::channel();
    let mut attention = attentive();
    let later = Some((Time(7), Instant::now() + Duration::from_secs(60)));
    let wake = Instant::now() + 2 * MS;
    let nothing = attention.hear(&heard, wake, later, no, |_| panic!("it is far away"));
    assert_eq!(nothing, Err(RecvTimeoutError::Timeout));
    attention.ends.insert(GPU, ending(WHO, Instant::now() + Duration::from_secs(60)));
    say.send(1).unwrap();
    assert_eq!(attention.hear(&heard, wake, later, no, |_| panic!("it is far away")), Ok(Noticed::Heard(1)));
    let nothing = attention.hear(&heard, Instant::now() + MS, later, no, |_| panic!("it is far away"));
    assert_eq!(nothing, Err(RecvTimeoutError::Timeout), "not for longer than until then");
    attention.ends.insert(GPU, ending(WHO, Instant::now()));
    let nothing = attention.hear(&heard, Instant::now() + MS, later, no, |_| panic!("it is far away"));
    assert_eq!(nothing, Err(RecvTimeoutError::Timeout));
    assert!(attention.ends.is_empty(), "it is over");
    drop(say);
    let over = attention.hear(&heard, wake, None, no, |_| panic!("there is none"));
    assert_eq!(over, Err(RecvTimeoutError::Disconnected));
}

#[test]
fn an_end_is_seen_once_and_each_ones_own() {
    let (say, heard) = mpsc::channel();
    let mut attention = attentive();
    let (far, other) = (Instant::now() + Duration::from_secs(60), TenantId(4));
    attention.ends.insert(GPU, ending(WHO, far));
    attention.ends.insert(GpuId(1), ending(other, far));
    let all = |_| Sight::Over;
    say.send(1).unwrap();
    let mut hear = |sight: &dyn Fn(TenantId) -> Sight| {
        let wake = Instant::now() + 2 * MS;
        attention.hear(&heard, wake, None, sight, |_| panic!("nothing is due"))
    };
    assert_eq!(hear(&all), Ok(Noticed::Heard(1)), "what was said before goes first");
    let only_other = |tenant| if tenant == other { Sight::Over } else { Sight::Open };
    assert_eq!(hear(&only_other), Ok(Noticed::Over(other)));
    assert_eq!(hear(&all), Ok(Noticed::Over(WHO)));
    assert_eq!(hear(&all), Err(RecvTimeoutError::Timeout), "nobody waits for one");
}

#[test]
fn ends_that_are_not_seen_are_not_waited_for_beyond_their_time() {
    let (_say, heard) = mpsc::channel::<u32>();
    let mut attention = attentive();
    let begin = Instant::now();
    attention.ends.insert(GPU, ending(WHO, begin + MS));
    attention.ends.insert(GpuId(1), ending(TenantId(4), begin + 2 * MS));
    let nothing = attention.hear(&heard, begin + 5 * MS, None, no, |_| panic!("nothing is due"));
    assert_eq!(nothing, Err(RecvTimeoutError::Timeout));
    assert!(attention.ends.is_empty() && begin.elapsed() >= 5 * MS);
}

#[test]
fn whoever_is_awake_for_a_request_sees_it_begin_and_what_was_not_needed_is_given_back() {
    let (_say, heard) = mpsc::channel::<u32>();
    let mut attention = attentive();
    let far = Instant::now() + standby::LONGEST;
    let coming = Ending { comes: true, was_open: false, ..ending(WHO, far) };
    assert!(attention.awaits_end(GPU, coming));
    let begun = attention.hear(&heard, far, None, no, |_| panic!("nothing is due"));
    assert!(
        begun == Ok(Noticed::Begun(WHO)) || Instant::now() >= far,
        "{begun:?}, unless this machine is far too busy"
    );
    assert!(attention.ends.is_empty(), "it is told of once");
    for _ in 0..20 {
        let until = Instant::now() + standby::LONGEST;
        assert!(attention.awaits_end(GPU, ending(WHO, until)));
        attention.awaits_no_end(TenantId(4));
        assert!(!attention.ends.is_empty(), "that is another one");
        attention.awaits_no_end(WHO);
    }
    let mut coming = Ending { comes: true, was_open: false, ..ending(WHO, far) };
    assert_eq!(coming.look(far, Sight::Over), Seen::Nothing, "it is yet to come");
    assert_eq!(coming.look(far, Sight::Unknown), Seen::Nothing);
}

#[test]
fn only_an_end_that_is_waited_out_is_left_to_be_seen() {
    let mut attention = attentive();
    attention.ends.insert(GPU, ending(WHO, Instant::now() + Duration::from_secs(60)));
    assert!(!attention.sees_end_of(WHO), "whoever is told first goes on");
    attention.ends.get_mut(&GPU).unwrap().is_waited_out = true;
    assert!(attention.sees_end_of(WHO) && !attention.sees_end_of(TenantId(4)));
    attention.ends.get_mut(&GPU).unwrap().was_open = false;
    assert!(!attention.sees_end_of(WHO), "its page does not tell");
    attention.ends.insert(GPU, Ending { is_waited_out: true, ..ending(WHO, Instant::now()) });
    assert!(!attention.sees_end_of(WHO), "nobody looks any more by then");
}

#[test]
fn the_end_of_short_requests_is_waited_for_from_when_they_come() {
    let (us, now) = (Span::from_micros, Time(1_000_000_000));
    let within = |comes, took| ends_within(now, comes, us(took)).map(|within| within.as_micros());
    assert_eq!(within(now, 80), Some(180));
    assert_eq!(within(now.before(us(50)), 80), Some(130), "it was heard of a while later");
    assert_eq!(within(now + us(700), 80), Some(880), "it is yet to come");
    assert_eq!(within(now.before(us(5_000)), 80), Some(0), "it is over by now");
    assert_eq!((within(now, 300), within(now, 301)), (Some(400), None), "others are too long");
}
