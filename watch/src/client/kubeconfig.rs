//! Reading a kubeconfig and the files that it names, which others can write: kube would wait
//! for a FIFO among them for ever, and read a device until the memory is full.

use std::io;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::{Kubeconfig, KubeconfigError};
use tweed_core::limits;
use tweed_core::regular_file::{self, ReadError};

/// Where a pod has the files of its service account, and those of them that kube reads.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const OF_SERVICE_ACCOUNT: [&str; 2] = ["ca.crt", "namespace"];

/// Why a kubeconfig cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unusable {
    #[error("cannot read {path}: {source}")]
    File { path: PathBuf, source: ReadError },
    #[error(transparent)]
    Content(#[from] KubeconfigError),
}

/// The kubeconfig at `path`. Paths in it are as they are written there.
pub(super) fn read(path: &Path) -> Result<Kubeconfig, Unusable> {
    let text = regular_file::read_text(path, limits::KUBECONFIG)
        .map_err(|source| unreadable(path, source))?;
    Ok(Kubeconfig::from_yaml(&text)?)
}

/// Puts the certificates and the key of the current context into the kubeconfig, in place of
/// the paths of their files. Other paths are made absolute: they are relative to the folder
/// of the kubeconfig, which is at `path`.
pub(super) fn include_files(kubeconfig: &mut Kubeconfig, path: &Path) -> Result<(), Unusable> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let contexts = kubeconfig.contexts.iter();
    let current = kubeconfig.current_context.as_ref();
    let mut current = contexts.filter(|one| Some(&one.name) == current);
    let Some(context) = current.next().and_then(|one| one.context.clone()) else {
        // kube says so.
        return Ok(());
    };
    let mut clusters = kubeconfig.clusters.iter_mut();
    let cluster = clusters.find(|one| one.name == context.cluster);
    if let Some(cluster) = cluster.and_then(|one| one.cluster.as_mut()) {
        let file = cluster.certificate_authority.take();
        include(folder, file, &mut cluster.certificate_authority_data)?;
    }
    let mut users = kubeconfig.auth_infos.iter_mut();
    let user = users.find(|one| Some(&one.name) == context.user.as_ref());
    let Some(user) = user.and_then(|one| one.auth_info.as_mut()) else {
        return Ok(());
    };
    let file = user.client_certificate.take();
    include(folder, file, &mut user.client_certificate_data)?;
    let file = user.client_key.take();
    include(folder, file, &mut user.client_key_data)?;
    let absolute = |path: &mut String| *path = folder.join(&*path).display().to_string();
    user.token_file.as_mut().into_iter().for_each(absolute);
    let command = user.exec.as_mut().and_then(|exec| exec.command.as_mut());
    // A bare name is looked for in PATH.
    let program = command.filter(|command| command.contains('/'));
    program.into_iter().for_each(absolute);
    Ok(())
}

/// Reads the file, unless the data are there already, which count then.
fn include<T: From<String>>(
    folder: &Path,
    file: Option<String>,
    data: &mut Option<T>,
) -> Result<(), Unusable> {
    if let (None, Some(file)) = (&data, file) {
        let path = folder.join(file);
        let content = regular_file::read(&path, limits::CREDENTIALS)
            .map_err(|source| unreadable(&path, source))?;
        *data = Some(STANDARD.encode(content).into());
    }
    Ok(())
}

/// Looks whether kube can read the files of the service account. Only the kubelet can put
/// others in their place.
pub(super) fn check_service_account() -> io::Result<()> {
    for name in OF_SERVICE_ACCOUNT {
        let path = Path::new(SERVICE_ACCOUNT).join(name);
        match regular_file::read(&path, limits::CREDENTIALS) {
            // kube says that this is no pod.
            Err(error) if error.is_missing() => {}
            Err(source) => return Err(io::Error::other(unreadable(&path, source))),
            Ok(_) => {}
        }
    }
    Ok(())
}

fn unreadable(path: &Path, source: ReadError) -> Unusable {
    let path = path.to_owned();
    Unusable::File { path, source }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    const TEXT: &str = "current-context: a\n\
        contexts: [{name: a, context: {cluster: a, user: a}}]\n\
        clusters: [{name: a, cluster: {server: 'https://a', certificate-authority: ca}}]\n\
        users: [{name: a, user: {client-certificate: crt, client-key: /dev/null, \
        tokenFile: token, exec: {command: bin/x}}}]\n";

    #[test]
    fn files_are_included_and_what_is_no_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("kubeconfig"), TEXT.replace("/dev/null", "key")).unwrap();
        for name in ["ca", "crt", "key"] {
            fs::write(path(name), name).unwrap();
        }
        let mut read = super::read(&path("kubeconfig")).unwrap();
        include_files(&mut read, &path("kubeconfig")).unwrap();
        let cluster = read.clusters[0].cluster.as_ref().unwrap();
        let encoded = STANDARD.encode("ca");
        assert_eq!(cluster.certificate_authority_data.as_ref(), Some(&encoded));
        assert_eq!(cluster.certificate_authority, None);
        let user = read.auth_infos[0].auth_info.as_ref().unwrap();
        assert!(user.client_key_data.is_some() && user.client_key.is_none());
        let absolute = |name| Some(path(name).display().to_string());
        assert_eq!(user.token_file, absolute("token"));
        assert_eq!(user.exec.as_ref().unwrap().command, absolute("bin/x"));

        fs::write(path("kubeconfig"), TEXT).unwrap();
        let mut read = super::read(&path("kubeconfig")).unwrap();
        let error = include_files(&mut read, &path("kubeconfig")).unwrap_err();
        let expected = "cannot read /dev/null: it is not a regular file";
        assert_eq!(error.to_string(), expected);
        symlink("/dev/zero", path("zero")).unwrap();
        let error = super::read(&path("zero")).unwrap_err().to_string();
        assert!(
            error.ends_with("/zero: it is not a regular file"),
            "{error}"
        );
    }
}
