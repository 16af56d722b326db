//! Every way to say where the server is and who we are.

use kapi::Namespace;
use kube_io::{Class, Kube, Scope, Settings};

use crate::{server, settings};

#[tokio::test]
async fn files_inline_values_and_kubeconfigs_all_lead_there() {
    let server = server().await;
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let file = dir.path().join(name);
        std::fs::write(&file, text).unwrap();
        Some(file)
    };
    let ways = [
        settings(&server),
        Settings {
            apiserver: Some(server.url()),
            // as editors and `kubectl create token > file` leave it
            token_file: write("token", &format!("{}\n", server.token())),
            ca_file: write("ca.crt", server.ca_pem()),
            ..Settings::default()
        },
        Settings { kubeconfig: write("kubeconfig", &server.kubeconfig()), ..Settings::default() },
    ];
    for settings in ways {
        let kube = Kube::connect(settings.clone()).await.unwrap();
        let namespaces = kube.list::<Namespace>(&Scope::all()).await.unwrap();
        assert!(namespaces.iter().any(|namespace| namespace.metadata.name == "default"), "{settings:?}");
    }
}

#[tokio::test]
async fn a_rotated_token_is_taken_up() {
    let server = server().await;
    let dir = tempfile::tempdir().unwrap();
    let token_file = dir.path().join("token");
    std::fs::write(&token_file, "expired").unwrap();
    let rotating = Settings { token: None, token_file: Some(token_file.clone()), ..settings(&server) };
    let kube = Kube::connect(rotating).await.unwrap();
    let refused = kube.get::<Namespace>("", "default").await.unwrap_err();
    assert_eq!((refused.code(), refused.class()), (Some(401), Class::Transient));
    // a new file in the old one's place, as the kubelet does it
    let new = dir.path().join("new");
    std::fs::write(&new, server.token()).unwrap();
    std::fs::rename(&new, &token_file).unwrap();
    let still = kube.get::<Namespace>("", "default").await;
    assert!(still.is_err(), "the request that is refused is the one that looks for a new token");
    kube.get::<Namespace>("", "default").await.unwrap();
}

#[tokio::test]
async fn a_server_signed_by_somebody_else_is_not_trusted() {
    let (server, other) = (server().await, server().await);
    let wrong = Settings { ca_data: Some(other.ca_pem().as_bytes().to_vec()), ..settings(&server) };
    let error = Kube::connect(wrong).await.unwrap().get::<Namespace>("", "default").await.unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
}

#[tokio::test]
async fn a_proxy_is_refused_rather_than_passed_by() {
    let server = server().await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("kubeconfig");
    let text = server.kubeconfig().replace("server:", "proxy-url: http://127.0.0.1:3128\n    server:");
    std::fs::write(&file, text).unwrap();
    let settings = Settings { kubeconfig: Some(file), ..Settings::default() };
    let error = Kube::connect(settings).await.err().expect("must be refused").to_string();
    assert!(error.contains("proxy http://127.0.0.1:3128"), "{error}");
}
