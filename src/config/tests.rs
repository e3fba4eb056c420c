//! Tests of the settings and of the values in them.

use super::*;

#[test]
fn durations_are_seconds_or_carry_a_unit() {
    for (text, want) in
        [("0", 0), ("90", 90_000), ("1.5", 1_500), ("30m", 1_800_000), ("2h", 7_200_000), ("3d", 259_200_000)]
    {
        assert_eq!(parse_duration_ms(text), Ok(want), "{text}");
    }
    for text in ["", "-1", "soon", "NaN", "inf", "1e300", "500000000y", "5 parsecs"] {
        assert!(parse_duration_ms(text).is_err(), "{text}");
    }
}

#[test]
fn sizes_are_powers_of_1024() {
    for (text, want) in [
        ("1", 1),
        ("512m", 512 << 20),
        ("2g", 2 << 30),
        ("1.5G", 3 << 29),
        ("64KiB", 64 << 10),
        ("1t", 1 << 40),
        ("10b", 10),
    ] {
        assert_eq!(parse_size_bytes(text), Ok(want), "{text}");
    }
    for text in ["", "g", "-1g", "0", "1x"] {
        assert!(parse_size_bytes(text).is_err(), "{text}");
    }
}

#[test]
fn a_file_wins_over_the_default_and_a_flag_over_the_file() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let file = dir.path().join("config.toml");
    std::fs::write(&file, "[engine]\naddress = \"unix:///x\"\n[templates.py]\nimage = \"python\"\n")
        .expect("write");
    let config = Config::load(&file, &Flags::default()).expect("loads");
    let engine = config.engine.clone().expect("set");
    assert_eq!((engine.value.as_str(), &engine.source), ("unix:///x", &Source::File(file.clone())));
    assert_eq!(config.template("base").expect("always there").image, None);
    let flags = Flags { engine: Some("tcp://y:1".to_owned()), ..Flags::default() };
    let config = Config::load(&file, &flags).expect("loads");
    assert_eq!(config.engine.expect("set").source, Source::Flag("--engine"));
}

#[test]
fn every_field_that_a_template_sets_is_explained_and_its_variables_are_masked() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let file = dir.path().join("config.toml");
    let text = "[templates.py]\nmemory = \"4g\"\ncpus = 2.5\npids = 9\nuser = \"1000\"\nidle = \"2h\"\n\
                timeout = \"8h\"\nnetwork = \"none\"\nprofile = \"moderate\"\nattach = \"agent\"\nenv = { TOKEN = \"s3cret\" }\n";
    std::fs::write(&file, text).expect("write");
    let config = Config::load(&file, &Flags::default()).expect("loads");
    let rows: Vec<String> = config
        .explain()
        .into_iter()
        .filter(|(name, ..)| name.starts_with("templates."))
        .map(|(name, value, source)| {
            format!("{} = {value} ({})", &name["templates.".len()..], source == Source::File(file.clone()))
        })
        .collect();
    let want = [
        "base.image = debian:stable-slim (false)",
        "py.cpus = 2.5 (true)",
        "py.memory = 4g (true)",
        "py.pids = 9 (true)",
        "py.network = none (true)",
        "py.user = 1000 (true)",
        "py.profile = moderate (true)",
        "py.timeout = 8h (true)",
        "py.idle = 2h (true)",
        "py.attach = agent (true)",
        "py.env.TOKEN = *** (true)",
    ];
    assert_eq!(rows, want);
}

#[test]
fn what_a_template_leaves_out_comes_from_base() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let file = dir.path().join("config.toml");
    let text = "[templates.base]\nimage = \"mine\"\nmemory = \"1g\"\nenv = { A = \"1\", B = \"1\" }\n\
                [templates.py]\nmemory = \"4g\"\nenv = { B = \"2\" }\n";
    std::fs::write(&file, text).expect("write");
    let py = Config::load(&file, &Flags::default()).expect("loads").template("py").expect("there");
    assert_eq!((py.image.as_deref(), py.memory.as_deref(), py.cpus), (Some("mine"), Some("4g"), None));
    let env: Vec<(&str, &str)> = py.env.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    assert_eq!(env, [("A", "1"), ("B", "2")]);
}

#[test]
fn a_typo_in_the_file_is_an_error_that_names_it() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let file = dir.path().join("config.toml");
    std::fs::write(&file, "[template.py]\nimage = \"python\"\n").expect("write");
    let error = Config::load(&file, &Flags::default()).expect_err("unknown section");
    let ConfigError::Parse { source, .. } = error else { panic!("{error:?}") };
    assert!(source.to_string().starts_with("line 1: unknown field `template`"), "{source}");
}

#[test]
fn an_error_in_the_file_repeats_no_value() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let file = dir.path().join("config.toml");
    let values = [
        "12345678",
        "\"12345678\"",
        "[12345678]",
        "\", expected 12345678\"",
        "\"expected 12345678 at line 1\"",
    ];
    for value in values {
        let text = format!("[templates.py]\nimage = \"python\"\npids = {value}\nenv = {{ T = {value} }}\n");
        std::fs::write(&file, text.replace("pids = 12345678", "pids = true")).expect("write");
        let error = Config::load(&file, &Flags::default()).expect_err("a wrong type");
        let said = format!("{error} {error:?}");
        assert!(!said.contains("12345678"), "{value}: {said}");
        assert!(said.contains("line: 3") || said.contains("line: 4"), "{said}");
    }
}

#[test]
fn a_template_that_cannot_work_is_an_error_of_the_file() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let file = dir.path().join("config.toml");
    let load = |line: &str| {
        let text = format!("[templates.py]\n{line}\nenv = {{ T = \"s3cret\" }}\n");
        std::fs::write(&file, text).expect("write");
        Config::load(&file, &Flags::default())
    };
    for (line, key, rule) in [
        ("memory = \"lots\"", "memory", "512m"),
        ("memory = \"1k\"", "memory", "at least 6m"),
        ("cpus = 0.0", "cpus", "0.01"),
        ("cpus = nan", "cpus", "1024"),
        ("pids = 0", "pids", "at least 1"),
        ("network = \"host\"", "network", "bridge or none"),
        ("profile = \"strict\"", "profile", "restrictive"),
        ("timeout = \"soon\"", "timeout", "30m"),
        ("idle = \"-1\"", "idle", "30m"),
        ("attach = \"vim\"", "attach", "shell or agent"),
    ] {
        let error = load(line).expect_err(line);
        let ConfigError::Value { source, .. } = &error else { panic!("{line}: {error:?}") };
        let said = format!("{error}: {source}");
        assert!(said.contains("config.toml") && said.contains(rule) && !said.contains("s3cret"), "{said}");
        assert!(source.to_string().starts_with(&format!("templates.py.{key} must be ")), "{said}");
    }
    for line in
        ["memory = \"6m\"", "cpus = 0.5", "network = \"none\"", "timeout = \"0\"", "idle = \"1h 30m\""]
    {
        assert!(load(line).is_ok(), "{line}");
    }
}

#[test]
fn how_much_output_is_kept_is_a_size_within_bounds() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("config.toml");
    let load = |text: &str| {
        std::fs::write(&file, text).expect("written");
        Config::load(&file, &Flags::default())
    };
    let usual = load("").expect("good");
    assert_eq!(usual.keep.value, 1024 * 1024);
    assert!(usual.explain().iter().any(|row| row.0 == "exec.keep" && row.2 == Source::Default));
    let set = load("[exec]\nkeep = \"4m\"").expect("good");
    assert_eq!((set.keep.value, &set.keep.source), (4 << 20, &Source::File(file.clone())));
    assert!(set.explain().iter().any(|(name, value, _)| name == "exec.keep" && value == "4194304"));
    for bad in ["1k", "65m", "much", "-1"] {
        let error = load(&format!("[exec]\nkeep = \"{bad}\"")).expect_err(bad);
        let why = std::error::Error::source(&error).expect("a cause").to_string();
        assert_eq!(why, "exec.keep must be a size between 64k and 64m", "{bad}");
    }
}

#[test]
fn a_budget_for_snapshots_is_a_size_or_none() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let file = dir.path().join("config.toml");
    let load = |value: &str| {
        std::fs::write(&file, format!("[snapshots]\nbudget = \"{value}\"\n")).expect("write");
        Config::load(&file, &Flags::default())
    };
    for (text, want) in [("20GiB", Some(20 << 30)), ("500m", Some(500 << 20)), ("0", None)] {
        assert_eq!(load(text).expect("loads").budget.value, want, "{text}");
    }
    let row = |config: &Config| {
        let rows = config.explain();
        rows.into_iter().find(|(name, ..)| name == "snapshots.budget").expect("a row").1
    };
    assert_eq!(
        (row(&load("20GiB").expect("loads")), row(&load("0").expect("loads"))),
        ("20.0 GiB".into(), "none".into())
    );
    let refused = load("much").expect_err("no size");
    let ConfigError::Value { source, .. } = refused else { panic!("a value: {refused}") };
    assert!(source.to_string().starts_with("snapshots.budget must be a size"), "{source}");
}
