//! Credentials of the Kubernetes API.

use crate::start;
use config::ApiAccess;

const PEM: &str = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n";

#[test]
fn a_pod_finds_everything_itself() {
    let dir = "/var/run/secrets/kubernetes.io/serviceaccount";
    let s = start(&[])
        .file(&format!("{dir}/token"), "t")
        .file(&format!("{dir}/ca.crt"), PEM)
        .env("KUBERNETES_SERVICE_HOST", "fd02::1")
        .env("KUBERNETES_SERVICE_PORT", "443");
    let ApiAccess::Server { url, ca_pem, token, token_file } = s.config().api else { panic!() };
    assert_eq!(url, "https://[fd02::1]:443");
    assert_eq!(ca_pem.as_deref(), Some(PEM.as_bytes()));
    assert_eq!((token, token_file), (None, Some(format!("{dir}/token").into())));
    // Its own kubeconfig replaces all that.
    let s = s.args(&["--k8s-kubeconfig=/kc"]).file("/kc", "");
    assert_eq!(s.config().api, ApiAccess::Kubeconfig("/kc".into()));
    assert_eq!(s.config().kubernetes.token_file, None);
}

#[test]
fn mistakes_name_the_setting_and_never_the_secret() {
    for (s, message) in [
        (start(&["--k8s-kubeconfig=/kc"]), "--k8s-kubeconfig \"/kc\" (from command line) cannot be read: "),
        (
            start(&[]).env("KUBECONFIG", "/kc"),
            "--k8s-kubeconfig \"/kc\" (from environment KUBECONFIG) cannot be read: ",
        ),
        (start(&["--k8s-cacert=/ca"]), "--k8s-cacert \"/ca\" (from command line) cannot be read: "),
        (start(&["--k8s-cacert=/ca"]).file("/ca", "junk"), "holds no PEM certificate"),
        (start(&["--k8s-cacert-data=SECRET!"]), "--k8s-cacert-data (from command line) is not base64 of PEM"),
        (start(&["--k8s-token-file=/t"]), "--k8s-token-file \"/t\" (from command line) cannot be read: "),
        (
            start(&["--k8s-apiserver=host:6443"]),
            "--k8s-apiserver \"host:6443\" (from command line) is not a URL; write https://HOST:PORT",
        ),
    ] {
        let error = s.error();
        assert!(error.contains(message) && !error.contains("SECRET"), "{error}");
    }
    let data = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t\n Cg==";
    let s = start(&["--k8s-cacert-data", data, "--k8s-apiserver=https://h:1/"]);
    assert!(
        matches!(s.config().api, ApiAccess::Server { url, ca_pem: Some(pem), .. } if pem.starts_with(b"-----BEGIN") && url == "https://h:1")
    );
}
