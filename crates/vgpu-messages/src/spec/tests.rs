use super::*;

#[test]
fn an_empty_description_is_the_default() {
    assert_eq!(Spec::parse("").unwrap(), Spec::default());
    Spec::default().check().unwrap();
}

#[test]
fn the_description_with_all_defaults_says_the_defaults() {
    let text = include_str!("../../vgpu.toml");
    assert_eq!(Spec::parse(text).unwrap(), Spec::default());
    let commented =
        text.replace("\n# out_of", "\nout_of").replace("\n# copy", "\ncopy").replace("\n# stuck", "\nstuck");
    let faults = Spec::parse(&commented).unwrap().faults;
    assert_eq!((faults.out_of_memory_at, faults.copy.unwrap().fails_at), (Some(3), Some(2)));
}

#[test]
fn everything_can_be_said() {
    let spec = Spec::parse(
        r#"
        gpus = 4
        memory = "2GiB"
        bus_in = "4GB/s"
        peers = { pairs = [[0, 1]] }
        numa_nodes = 2
        unknown_kernels = "no-op"
        [costs]
        switch = "1ms"
        [faults]
        out_of_memory_at = 3
        stuck_kernel = "spin"
        [faults.control]
        takes = "20ms"
        "#,
    )
    .unwrap();
    assert_eq!(spec.costs.switch, Nanos(1_000_000));
    assert_eq!(spec.costs.thaw, Costs::default().thaw);
    assert_eq!(spec.faults.control.as_ref().unwrap().takes, Some(Nanos(20_000_000)));
    let devices = spec.devices();
    assert_eq!(devices[1].peers, [DeviceId(0)]);
    assert_eq!(devices[2].peers, []);
    assert_eq!(devices.iter().map(|device| device.numa_node).collect::<Vec<_>>(), [0, 0, 1, 1]);
    assert_ne!(devices[0].uuid, devices[1].uuid);
}

#[test]
fn what_makes_no_machine_is_refused() {
    for text in
        ["gpus = 0", "gpus = 17", "memory = '1MiB'", "time_scale = 0.0", "costs = { switch_save = 0.9 }"]
    {
        assert!(Spec::parse(text).unwrap().check().is_err(), "{text}");
    }
    assert!(Spec::parse("bus = '1GB/s'").is_err(), "an unknown name");
}

#[test]
fn the_environment_goes_over_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let directory = Directory::new(directory.path());
    std::fs::write(directory.spec(), "gpus = 2").unwrap();
    let spec = Spec::load(&directory, |name| (name == "ROTA_VGPU_MEMORY").then(|| "64MiB".into())).unwrap();
    assert_eq!((spec.gpus, spec.memory), (2, Bytes(64 << 20)));
    let error = Spec::load(&directory, |name| (name == "ROTA_VGPU_GPUS").then(|| "many".into())).unwrap_err();
    assert!(error.to_string().contains("ROTA_VGPU_GPUS"), "{error}");
}

#[test]
fn gpus_of_two_machines_have_other_uuids_and_those_of_one_the_same() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let uuid = |path| Spec::load(&Directory::new(path), |_| None).unwrap().devices()[0].uuid;
    assert_ne!(uuid(one.path().to_owned()), uuid(other.path().to_owned()));
    assert_eq!(
        uuid(one.path().to_owned()),
        uuid(one.path().join("..").join(one.path().file_name().unwrap()))
    );
}
