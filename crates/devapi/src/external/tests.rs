use super::*;

fn folder(etcd: &str, apiserver: &str) -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().expect("folder");
    for (name, script) in [("etcd", etcd), ("kube-apiserver", apiserver)] {
        let path = folder.path().join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("script");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("mode");
    }
    folder
}

async fn refused(assets: &Path) -> (String, usize) {
    let work = tempfile::tempdir().expect("folder");
    let options = ExternalOptions { work_dir: work.path().to_owned(), ..ExternalOptions::default() };
    let error = External::start(&Here, assets, options).await.err().expect("not started");
    (error.to_string(), std::fs::read_dir(work.path()).expect("folder").count())
}

#[tokio::test]
async fn a_folder_without_programs_is_named() {
    let folder = tempfile::tempdir().expect("folder");
    let (error, left) = refused(folder.path()).await;
    assert!(error.contains("KUBEBUILDER_ASSETS must name a folder"), "{error}");
    assert_eq!(left, 0);
}

#[tokio::test]
async fn a_program_that_ends_is_told_with_its_log() {
    for (etcd, apiserver, program) in [
        ("echo cannot listen; exit 3", "exec sleep 1000", "etcd"),
        ("exec sleep 1000", "echo cannot listen >&2; exit 3", "kube-apiserver"),
    ] {
        let folder = folder(etcd, apiserver);
        let (error, left) = refused(folder.path()).await;
        let ended = format!("{program} ended with exit status: 3");
        assert!(error.contains(&ended) && error.contains("cannot listen"), "{error}");
        assert_eq!(left, 0, "its files stayed behind");
    }
}

#[test]
fn the_command_lines_agree_with_each_other() {
    let work = tempfile::tempdir().expect("folder");
    let options = ExternalOptions {
        service_cidrs: ["10.96.0.0/16", "fd00:10:96::/112"].map(|c| c.parse().expect("range")).to_vec(),
        flags: vec!["--v=3".into()],
        ..ExternalOptions::default()
    };
    let address: SocketAddr = "172.18.0.254:6443".parse().expect("address");
    let flags = flags::prepare(work.path(), address, (2001, 2002), "secret", &options).expect("flags");
    let has = |flags: &[String], flag: &str| flags.iter().any(|f| f == flag);
    assert!(has(&flags.etcd, "--listen-client-urls=http://127.0.0.1:2001"), "{:?}", flags.etcd);
    for flag in [
        "--etcd-servers=http://127.0.0.1:2001",
        "--bind-address=172.18.0.254",
        "--secure-port=6443",
        "--service-cluster-ip-range=10.96.0.0/16,fd00:10:96::/112",
        "--v=3",
    ] {
        assert!(has(&flags.apiserver, flag), "{flag} of {:?}", flags.apiserver);
    }
    // It publishes itself, unless it is on loopback, where it may not.
    let publishes = |flags: &[String]| !has(flags, "--endpoint-reconciler-type=none");
    assert!(publishes(&flags.apiserver));
    let address: SocketAddr = "[::1]:6443".parse().expect("address");
    let flags = flags::prepare(work.path(), address, (2001, 2002), "secret", &options).expect("flags");
    assert!(!publishes(&flags.apiserver));
    // Every file that is named is there, and its contents are nobody else's business.
    for path in flags.apiserver.iter().filter_map(|flag| flag.split_once("=/").map(|(_, path)| path)) {
        use std::os::unix::fs::PermissionsExt as _;
        let file = std::fs::metadata(Path::new("/").join(path)).expect("a file");
        assert_eq!(file.permissions().mode() & 0o77, 0, "{path}");
    }
    let users = std::fs::read_to_string(work.path().join("tokens.csv")).expect("users");
    assert_eq!(users, "secret,admin,admin,\"system:masters\"\n");
}
