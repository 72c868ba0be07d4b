use super::*;

fn config(text: &str, flags: Settings) -> Result<Config, ConfigError> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    Config::load(flags, Some(file.path()))
}

fn complaint(text: &str) -> String {
    config(text, Settings::default()).unwrap_err().to_string()
}

#[test]
fn a_flag_beats_the_file_and_the_file_beats_the_default() {
    let text = "capacity = '16GiB'\nturn = '5s'\nturn_jitter = 0.5\npolicy = 'priority'\ngap_max = '9s'\n";
    let flags = Settings {
        turn: Some("100ms".parse().unwrap()),
        policy: Some(Policy::Serial),
        ..Settings::default()
    };
    let config = config(text, flags).unwrap();
    assert_eq!(config.sharing.turn_max, sched::Span::from_millis(100));
    assert_eq!(config.sharing.policy, sched::PolicyKind::Serial);
    assert_eq!(config.sharing.gap_max, sched::Span::from_secs(9));
    assert_eq!(config.sharing.moving_share, sched::Settings::default().moving_share);
    assert_eq!(config.capacity, Some(Bytes(16 << 30)));
    assert_eq!(config.turn_jitter, 0.5);
    assert_eq!((config.reserve, config.residue), (None, None));
}

#[test]
fn a_flag_that_fixes_turns_beats_the_files_bounds_and_the_other_way_round() {
    let fixed = Settings { turn: Some("2s".parse().unwrap()), ..Settings::default() };
    let sharing = config("turn_min = '1s'\nturn_max = '3s'\n", fixed).unwrap().sharing;
    assert_eq!((sharing.turn_min, sharing.turn_max), (sched::Span::from_secs(2), sched::Span::from_secs(2)));
    let bound = Settings { turn_min: Some("200ms".parse().unwrap()), ..Settings::default() };
    let sharing = config("turn = '5s'\n", bound).unwrap().sharing;
    assert_eq!(sharing.turn_min, sched::Span::from_millis(200));
    assert_eq!(sharing.turn_max, sched::Settings::default().turn_max);
    let bound = Settings { turn_min: Some("200ms".parse().unwrap()), ..Settings::default() };
    let sharing = config("turn_max = '5s'\n", bound).unwrap().sharing;
    assert_eq!(
        (sharing.turn_min, sharing.turn_max),
        (sched::Span::from_millis(200), sched::Span::from_secs(5))
    );
}

#[test]
fn errors_name_file_line_and_reason() {
    let text = complaint("gpu = 0\nturns = '5s'\n");
    assert!(text.contains("line 2") && text.contains("turns"), "{text}");
    let text = complaint("capacity = '16'\n");
    assert!(text.contains("no unit"), "{text}");
    let text = complaint("gpu = 0\npolicy = 'random'\n");
    assert!(text.contains("line 2") && text.contains("serial"), "{text}");
    let text = complaint("moving_share = 0.05\n");
    assert!(text.contains("line 1") && text.contains("5%"), "{text}");
    let missing = Config::load(Settings::default(), Some(Path::new("/no/such/file")));
    assert!(missing.unwrap_err().to_string().contains("/no/such/file"));
}

#[test]
fn values_that_cannot_be_meant_are_named() {
    for (text, key) in [
        ("turn_jitter = 2.0", "turn_jitter is 2"),
        ("moving_share = '100%'", "moving_share is 100%"),
        ("be_guarantee = '101%'", "be_guarantee is 101%"),
        ("overcommit_max = '50%'", "overcommit_max is 50%"),
        ("tenants_max = 0", "tenants_max is 0"),
        ("tenants_max = 129", "tenants_max is 129"),
        ("turn_min = '2s'\nturn_max = '1s'", "turn_min is 2s"),
    ] {
        let said = complaint(text);
        assert!(said.contains(key) && said.contains("must be"), "{text}: {said}");
    }
    let said = complaint("turn = '2s'\nturn_max = '1s'");
    assert!(said.contains("turn_max") && said.contains("hint"), "{said}");
}
