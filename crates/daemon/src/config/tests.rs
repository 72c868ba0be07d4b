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
    // After the file's name.
    let said = |text: &str| complaint(text).split_once(':').unwrap().1.to_owned();
    for (text, expected) in [
        ("gpus = '0'\nturns = '5s'\n", "2: turns: there is no such key\nhint: did you mean turn?"),
        ("capacity = '16'\n", "1: capacity: `16` has no unit; write for example 16GiB or 600MiB"),
        (
            "# all\n\narena = '16 gib'\n",
            "3: arena: `16 gib` has the unknown unit `gib`; known are B, KiB, MiB, GiB, TiB, KB, MB, GB, TB",
        ),
        (
            "moving_share = 0.05\n",
            "1: moving_share: invalid type: floating point `0.05`, expected text with a unit, as \"5%\"",
        ),
        (
            "gpus = '0,first'\n",
            "1: gpus: \"first\" is neither the index of a GPU nor its UUID, as in 0 or GPU-…; `all` means every GPU",
        ),
        (
            "turn_min = '2s'\nturn_max = '1s'\n",
            "1: turn_min is 2s, but must be at most turn_max, which is 1.00 s",
        ),
        ("\ntenants_max = 129\n", "2: tenants_max is 129, but must be between 1 and 128"),
        (
            "[[user]]\nname = 'root'\nmemroy_max = '8GiB'\n",
            "3: memroy_max: there is no such key\nhint: did you mean memory_max?",
        ),
        (
            "[[command]]\nname = 'trainer'\ngpus_max = 1\n",
            "3: gpus_max: there is no such key\nhint: known here are path, name, memory_max, cores_max, weight_max, lc, reserve, priority_max",
        ),
        (
            "capacity = '16GiB'\n\n[[command]]\nlc = true\n",
            "3: a [[command]] names nothing\nhint: add path = \"/…\" or name = \"…\"",
        ),
        (
            "[[command]]\nname = 'a'\n[[user]]\nuid = 1\n[[command]]\nname = 'a'\n",
            "5: [[command]] a: there is a rule for it already, in line 1\nhint: make one of the two",
        ),
        (
            "[[command]]\npath = 'bin/a'\n",
            "1: [[command]] bin/a: a path begins with /\nhint: to go by the file's name alone, write name = \"…\"",
        ),
        ("[[user]]\nmemory_max = '8'\n", "2: memory_max: `8` has no unit; write for example 8GiB or 50%"),
    ] {
        assert_eq!(said(text), expected, "{text}");
    }
    let text = complaint("[[group]]\nmemory_max = '8GiB'\n");
    assert!(text.ends_with(": a [[group]] names nobody\nhint: add name = \"…\" or gid = …"), "{text}");
    let text = complaint("gpus = '0'\npolicy = 'random'\n");
    assert!(text.contains(":2: policy: ") && text.contains("`serial`"), "{text}");
    let text = complaint("qqqqqqqqqq = 0\n");
    assert!(text.contains("qqqqqqqqqq: there is no such key\nhint: known here are socket, gpus"), "{text}");
    let text = complaint("gpus = \n");
    assert!(text.contains(":1: gpus: "), "{text}");
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

#[test]
fn every_setting_says_where_it_comes_from() {
    let text = "# comment\ncapacity = '16GiB'\nturn = '5s'\n[[user]]\nuid = 7\n";
    let flags = Settings {
        arena: Some(Bytes(1 << 30)),
        socket: Some("/s".into()),
        from_environment: vec![("socket", "ROTA_SOCKET")],
        ..Settings::default()
    };
    let config = config(text, flags).unwrap();
    let file = config.file.unwrap().display().to_string();
    let of = |key: &str| {
        let setting = config.settings.iter().find(|setting| setting.key == key).unwrap();
        (setting.value.clone(), setting.origin.replace(&file, "FILE"))
    };
    let pair = |value: &str, origin: &str| (value.to_owned(), origin.to_owned());
    assert_eq!(of("capacity"), pair("16GiB", "FILE:2"));
    assert_eq!(of("turn"), pair("5s", "FILE:3"));
    assert_eq!(of("turn_min"), pair("as turn", "default"));
    assert_eq!(of("arena"), pair("1GiB", "flag --arena"));
    assert_eq!(of("socket"), pair("/s", "environment ROTA_SOCKET"));
    assert_eq!(of("policy"), pair("fair", "default"));
    assert_eq!(of("user, group, command"), pair("see the file", "FILE"));
}

#[test]
fn memory_is_passed_between_programs_of_a_user_or_never() {
    let never = config("pass_memory = 'never'\n", Settings::default()).unwrap();
    assert_eq!(never.pass_memory, PassMemory::Never);
    let flags = Settings { pass_memory: Some(PassMemory::User), ..Settings::default() };
    assert_eq!(config("pass_memory = 'never'\n", flags).unwrap().pass_memory, PassMemory::User);
    assert!(complaint("pass_memory = 'all'\n").contains(":1: pass_memory: "));
}

#[test]
fn clean_copies_are_off_on_or_audited() {
    let flags = || Settings { clean_copies: Some(CleanCopies::On), ..Settings::default() };
    assert_eq!(
        config("clean_copies = 'audit'\n", Settings::default()).unwrap().clean_copies,
        CleanCopies::Audit
    );
    let over = config("clean_copies = 'audit'\n", flags()).unwrap();
    assert_eq!(over.clean_copies, CleanCopies::On);
    let said = over.settings.iter().find(|setting| setting.key == "clean_copies").unwrap();
    assert_eq!((said.value.as_str(), said.origin.as_str()), ("on", "flag --clean-copies"));
    assert!(complaint("clean_copies = true\n").contains(":1: clean_copies: "));
}

#[test]
fn defaults_are_said_as_they_are() {
    let config = config("", Settings::default()).unwrap();
    let usual = sched::Settings::default();
    let of = |key: &str| config.settings.iter().find(|setting| setting.key == key).unwrap().value.clone();
    let span = |key: &str| of(key).parse::<Span>().unwrap().nanos();
    assert_eq!((span("turn_min"), span("turn_max")), (usual.turn_min.0, usual.turn_max.0));
    assert_eq!(span("gap_max"), usual.gap_max.0);
    for (key, ratio) in [
        ("moving_share", usual.moving_share),
        ("overcommit_max", usual.overcommit_max),
        ("be_guarantee", usual.be_guarantee),
    ] {
        assert_eq!(of(key).parse::<Share>().unwrap().millionths(), ratio.0, "{key}");
    }
    assert_eq!(of("tenants_max"), config.sharing.tenants_max.to_string());
    assert_eq!(of("policy"), format!("{:?}", usual.policy).to_lowercase());
    assert_eq!((of("clean_copies"), config.clean_copies), ("on".to_owned(), CleanCopies::On));
    assert_eq!((of("pass_memory"), config.pass_memory), ("user".to_owned(), PassMemory::User));
    assert_eq!((of("prefetch"), config.sharing.prefetch), ("on".to_owned(), true));
    assert_eq!((of("thaw_ahead"), config.sharing.thaw_ahead), ("off".to_owned(), false));
}

#[test]
fn staying_awake_can_be_turned_off() {
    let of = |config: &Config| config.settings.iter().find(|one| one.key == "standby").unwrap().value.clone();
    let usual = config("", Settings::default()).unwrap();
    assert_eq!((usual.standby, of(&usual)), (Standby::Auto, "auto".to_owned()));
    let off = config("standby = 'off'\n", Settings::default()).unwrap();
    assert_eq!((off.standby, of(&off)), (Standby::Off, "off".to_owned()));
    let flag = Settings { standby: Some(Standby::Auto), ..Settings::default() };
    assert_eq!(config("standby = 'off'\n", flag).unwrap().standby, Standby::Auto);
    assert!(complaint("standby = 'on'\n").contains(":1: standby: "));
}

#[test]
fn what_is_on_or_off_is_nothing_else() {
    let off = config("prefetch = 'off'\n", Settings::default()).unwrap();
    assert!(!off.sharing.prefetch);
    let flag = Settings { prefetch: Some(OnOff::On), ..Settings::default() };
    assert!(config("prefetch = 'off'\n", flag).unwrap().sharing.prefetch);
    assert!(complaint("prefetch = true\n").contains(":1: prefetch: "));
    assert!(config("thaw_ahead = 'on'\n", Settings::default()).unwrap().sharing.thaw_ahead);
}

/// The same without where it comes from.
fn read_again(config: &Config) -> Config {
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = config.as_toml().unwrap();
    std::fs::write(file.path(), &text).unwrap();
    let again = Config::load(Settings::default(), Some(file.path()));
    let again = again.unwrap_or_else(|error| panic!("{error}\n{text}"));
    // Of a real GPU that much is kept anyway.
    let usual = config.reserve.is_none() && again.reserve == Some(Bytes(600 << 20)) && config.vgpu.is_none();
    Config {
        file: config.file.clone(),
        settings: config.settings.clone(),
        reserve: if usual { None } else { again.reserve },
        ..again
    }
}

#[test]
fn what_is_in_force_can_be_written_down_and_read_again() {
    let everything = "\
        socket = '/run/a \"name\"/s'\ngpus = '1,0'\ncapacity = '1000000001B'\narena = '3MB'\ncellar = '/var/c'\n\
        cellar_limit = '1.5TiB'\nreserve = '3KiB'\nresidue = '7MiB'\nevents = '/var/e'\nfreeze = 'launches'\n\
        clean_copies = 'audit'\npass_memory = 'never'\npolicy = 'priority'\nturn_min = '150us'\n\
        turn_max = '1.25s'\nturn_jitter = 0.25\nmoving_share = '3.5%'\ngap_max = '89s'\nprefetch = 'off'\n\
        headroom = '1MiB'\novercommit_max = '250%'\noversize_max = '3GB'\nrehome = 'none'\ntenants_max = 9\n\
        be_guarantee = '12.5%'\nfavour = 'balanced'\nthaw_ahead = 'on'\nageing = '7s'\nidle_exit = '3min'\neverybody = true\n\
        [[user]]\nuid = 7\nmemory_max = '50%'\nlc = true\n[[user]]\nname = '*'\nweight_max = 2\n\
        [[group]]\ngid = 8\nreserve = false\n[[command]]\npath = '/opt/**'\npriority_max = 'low'\n";
    for text in [everything, "", "turn = '5s'\n", "oversize_max = 'none'\n", "vgpu = '/tmp/machine'\n"] {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let before = Config::load(Settings::default(), Some(file.path())).unwrap();
        assert_eq!(read_again(&before), before, "{text}");
    }
    // Of flags, too.
    let flags = Settings { turn: Some("100ms".parse().unwrap()), ..Settings::default() };
    let before = config("turn_max = '5s'\n", flags);
    let written = before.unwrap().settings;
    assert!(written.iter().any(|setting| setting.key == "turn" && setting.value == "100ms"));
}

/// Words between backquotes.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

#[test]
fn every_key_has_its_row_in_the_documentation() {
    let page = include_str!("../../../../docs/configuration.md");
    let mut documented = std::collections::BTreeMap::new();
    for line in page.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, keys, default, _, ..] = cells[..] else { continue };
        // Two keys of a row have two defaults.
        let defaults = quoted(default).into_iter().map(Some).chain(std::iter::repeat(None));
        documented.extend(quoted(keys).into_iter().zip(defaults));
    }
    let keys = origins::KEYS.iter().filter(|(key, _)| !key.contains("user"));
    for (key, default) in keys.clone() {
        let said = documented.get(key).unwrap_or_else(|| panic!("{key} is not there"));
        assert!(
            said.is_none_or(|said| said.trim_matches('"') == *default),
            "{key}: {said:?} is not {default}"
        );
    }
    assert_eq!(documented.len(), keys.count(), "{:?}", documented.keys());
    for rule in ["[[user]]", "[[group]]", "[[command]]"] {
        assert!(page.contains(rule), "{rule} is not there");
    }
}

#[test]
fn what_the_documentation_shows_can_be_read() {
    for page in [include_str!("../../../../README.md"), include_str!("../../../../docs/configuration.md")] {
        let block =
            page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
        // Names of people that this machine does not have.
        let file = block.replace("\"ada\"", "\"root\"").replace("\"students\"", "\"root\"");
        config(&file, Settings::default()).unwrap_or_else(|error| panic!("{error}\n{file}"));
    }
}
