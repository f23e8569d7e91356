//! Certificates and kubeconfigs of a cluster: one authority, a client
//! certificate for each component, a serving one for the API server and for
//! each kubelet, and the key that signs service accounts' tokens.

use std::fs;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use serde_json::json;

use crate::spec::{API_PORT, SERVICE_OF_API};
use tweed_lab::LabError;

/// A cluster's certificates, in one folder.
#[derive(Debug, Clone)]
pub(crate) struct Pki {
    folder: PathBuf,
}

/// Who a client certificate is for.
pub(crate) struct Identity<'a> {
    /// The user's name for Kubernetes.
    pub(crate) user: &'a str,
    /// The group, if it has one.
    pub(crate) group: Option<&'a str>,
}

/// The identities of the control plane and of a person, by file name.
const IDENTITIES: &[(&str, Identity<'static>)] = &[
    (
        "admin",
        Identity {
            user: "admin",
            group: Some("system:masters"),
        },
    ),
    (
        "apiserver-to-kubelet",
        Identity {
            user: "kube-apiserver",
            group: Some("system:masters"),
        },
    ),
    (
        "controller-manager",
        Identity {
            user: "system:kube-controller-manager",
            group: None,
        },
    ),
    (
        "kube-proxy",
        Identity {
            user: "system:kube-proxy",
            group: None,
        },
    ),
    (
        "scheduler",
        Identity {
            user: "system:kube-scheduler",
            group: None,
        },
    ),
];

impl Pki {
    /// The certificates that already exist in `folder`.
    pub(crate) fn existing(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
        }
    }

    /// Creates all certificates except those of the nodes. `api` is the address of the
    /// API server.
    pub(crate) fn create(folder: &Path, api: Ipv4Addr) -> Result<Self, LabError> {
        fs::create_dir_all(folder).map_err(|e| LabError::file("create", folder, e))?;
        let pki = Self::existing(folder);
        let key = new_key("the authority's key")?;
        let authority = authority()
            .self_signed(&key)
            .map_err(|source| certificate_error("the authority", source))?;
        pki.write("ca.key", &key.serialize_pem())?;
        pki.write("ca.crt", &authority.pem())?;

        let tokens = new_key("the key of service accounts")?;
        pki.write("service-accounts.key", &tokens.serialize_pem())?;
        pki.write("service-accounts.pub", &tokens.public_key_pem())?;

        let names = [
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
        ];
        let addresses = [api, SERVICE_OF_API, Ipv4Addr::LOCALHOST];
        pki.issue(
            "apiserver",
            &Identity {
                user: "kube-apiserver",
                group: None,
            },
            &names,
            &addresses,
        )?;
        for (file, identity) in IDENTITIES {
            pki.issue(file, identity, &[], &[])?;
            pki.write_kubeconfig(file, api)?;
        }
        Ok(pki)
    }

    /// Creates a node's certificate, for serving and as a client, and its kubeconfig.
    /// The files are named `node-<name>`.
    pub(crate) fn add_node(
        &self,
        name: &str,
        address: Ipv4Addr,
        api: Ipv4Addr,
    ) -> Result<(), LabError> {
        let file = node_file(name);
        let identity = Identity {
            user: &format!("system:node:{name}"),
            group: Some("system:nodes"),
        };
        self.issue(&file, &identity, &[name], &[address])?;
        self.write_kubeconfig(&file, api)
    }

    /// Path of a file: `<name>.crt`, `.key` or `.kubeconfig`.
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }

    /// Writes `<file>.crt` and `<file>.key`.
    fn issue(
        &self,
        file: &str,
        identity: &Identity<'_>,
        names: &[&str],
        addresses: &[Ipv4Addr],
    ) -> Result<(), LabError> {
        let failed = |source| certificate_error(file, source);
        // The authority's parameters are always the same, so its key is enough to
        // sign.
        let authority_key = KeyPair::from_pem(&self.read("ca.key")?).map_err(failed)?;
        let issuer = Issuer::new(authority(), authority_key);
        let key = new_key(file)?;
        let params = leaf(identity, names, addresses).map_err(failed)?;
        let certificate = params.signed_by(&key, &issuer).map_err(failed)?;
        self.write(&format!("{file}.crt"), &certificate.pem())?;
        self.write(&format!("{file}.key"), &key.serialize_pem())
    }

    fn write_kubeconfig(&self, file: &str, api: Ipv4Addr) -> Result<(), LabError> {
        self.write(&format!("{file}.kubeconfig"), &kubeconfig(api, file))
    }

    fn read(&self, file: &str) -> Result<String, LabError> {
        let path = self.path(file);
        fs::read_to_string(&path).map_err(|e| LabError::file("read", &path, e))
    }

    fn write(&self, file: &str, text: &str) -> Result<(), LabError> {
        let path = self.path(file);
        // Only root may read keys, and certificates with them.
        let written = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&path)
            .and_then(|mut opened| opened.write_all(text.as_bytes()));
        written.map_err(|e| LabError::file("write", &path, e))
    }
}

/// The name of a node's files, without ending.
pub(crate) fn node_file(node: &str) -> String {
    format!("node-{node}")
}

fn new_key(subject: &str) -> Result<KeyPair, LabError> {
    KeyPair::generate().map_err(|source| certificate_error(subject, source))
}

fn certificate_error(subject: &str, source: rcgen::Error) -> LabError {
    LabError::Certificate {
        subject: subject.to_owned(),
        source: source.into(),
    }
}

fn authority() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, "tweed lab");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    params
}

fn leaf(
    identity: &Identity<'_>,
    names: &[&str],
    addresses: &[Ipv4Addr],
) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, identity.user);
    if let Some(group) = identity.group {
        params
            .distinguished_name
            .push(DnType::OrganizationName, group);
    }
    for name in names {
        params
            .subject_alt_names
            .push(SanType::DnsName(Ia5String::try_from(*name)?));
    }
    for address in addresses {
        params
            .subject_alt_names
            .push(SanType::IpAddress(IpAddr::V4(*address)));
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

/// A kubeconfig for the folder of the certificates: paths in it are relative to its
/// own folder. It is JSON, which is YAML.
fn kubeconfig(api: Ipv4Addr, file: &str) -> String {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "lab", "cluster": {
            "server": format!("https://{api}:{API_PORT}"),
            "certificate-authority": "ca.crt",
        }}],
        "users": [{ "name": "lab", "user": {
            "client-certificate": format!("{file}.crt"),
            "client-key": format!("{file}.key"),
        }}],
        "contexts": [{ "name": "lab", "context": { "cluster": "lab", "user": "lab" } }],
        "current-context": "lab",
    });
    format!("{config:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_gets_a_kubeconfig_with_its_certificate_and_the_authority() {
        let folder = tempfile::tempdir().unwrap();
        let api = Ipv4Addr::new(192, 0, 2, 11);
        let pki = Pki::create(folder.path(), api).unwrap();
        pki.add_node("worker1", Ipv4Addr::new(192, 0, 2, 12), api)
            .unwrap();
        let text = fs::read_to_string(pki.path("node-worker1.kubeconfig")).unwrap();
        let config: serde_json::Value = serde_json::from_str(&text).unwrap();
        let cluster = &config["clusters"][0]["cluster"];
        assert_eq!(cluster["server"], "https://192.0.2.11:6443");
        let user = &config["users"][0]["user"];
        for (file, is) in [
            (&cluster["certificate-authority"], "CERTIFICATE"),
            (&user["client-certificate"], "CERTIFICATE"),
            (&user["client-key"], "PRIVATE KEY"),
        ] {
            let text = fs::read_to_string(pki.path(file.as_str().unwrap())).unwrap();
            assert!(
                text.starts_with(&format!("-----BEGIN {is}-----")),
                "{file}: {text}"
            );
        }
    }
}
