//! The archive that a guest starts from: cpio in its `newc` form, without compression, so that a kernel needs nothing but
//! `CONFIG_BLK_DEV_INITRD`.
//!
//! The same input gives the same bytes: times are 0, numbers of files count up, nothing of the machine is in it.
//! Lineage: Linux Documentation/driver-api/early-userspace/buffer-format.rst.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::elf::loaded;
use crate::modules::Module;
use crate::sha256;

use stopgap_guest::protocol::PLAN;

/// A file for the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitramfsFile {
    /// Absolute. Folders on the way are made.
    pub path: String,
    /// Its content.
    pub bytes: Vec<u8>,
    /// Whether it may be executed.
    pub executable: bool,
}

/// A finished archive. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Initramfs {
    bytes: Arc<[u8]>,
    sha256: Arc<str>,
}

impl Initramfs {
    /// `program` becomes `/init` (of an ELF file what is loaded of it), `plan` [`PLAN`], modules lie at [`Module::path`].
    ///
    /// # Errors
    ///
    /// A file without an absolute name, with `..` in it, or larger than the format allows (4 GiB).
    pub fn build(
        program: &[u8],
        plan: &str,
        modules: &[Module],
        files: &[InitramfsFile],
    ) -> crate::Result<Initramfs> {
        let mut cpio = Cpio::default();
        let in_guest = crate::modules::IN_GUEST;
        for folder in ["/dev", "/proc", "/sys", "/tmp", "/stopgap", in_guest] {
            cpio.folder(folder)?;
        }
        // The kernel opens it as /init's standard input and output before anything is mounted.
        cpio.entry("/dev/console", 0o020_600, (5, 1), &[])?;
        cpio.entry("/dev/null", 0o020_666, (1, 3), &[])?;
        cpio.entry("/init", 0o100_755, (0, 0), &loaded(program))?;
        cpio.entry(PLAN, 0o100_644, (0, 0), plan.as_bytes())?;
        for module in modules {
            cpio.entry(&module.path(), 0o100_644, (0, 0), &module.bytes)?;
        }
        for file in files {
            let mode = if file.executable {
                0o100_755
            } else {
                0o100_644
            };
            cpio.entry(&file.path, mode, (0, 0), &file.bytes)?;
        }
        let bytes = cpio.finish();
        Ok(Initramfs {
            sha256: sha256::hex(&bytes).into(),
            bytes: bytes.into(),
        })
    }

    /// The archive.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// SHA-256, 64 hexadecimal digits.
    #[must_use]
    pub fn sha256(&self) -> &str {
        &self.sha256
    }
}

#[derive(Debug, Default)]
struct Cpio {
    bytes: Vec<u8>,
    number: u32,
    names: BTreeSet<String>,
}

impl Cpio {
    fn folder(&mut self, path: &str) -> crate::Result<()> {
        if self.names.contains(path) {
            return Ok(());
        }
        self.entry(path, 0o040_755, (0, 0), &[])
    }

    /// One entry and the folders on its way.
    fn entry(
        &mut self,
        path: &str,
        mode: u32,
        device: (u32, u32),
        body: &[u8],
    ) -> crate::Result<()> {
        let bad =
            |why: &str| crate::Error::about(path, format!("cannot lie in an initramfs: {why}"));
        let inside = path
            .strip_prefix('/')
            .ok_or_else(|| bad("its name is not absolute"))?;
        if inside
            .split('/')
            .any(|part| part.is_empty() || part == "." || part == "..")
            || inside.contains('\0')
        {
            return Err(bad("its name is not plain"));
        }
        let length = u32::try_from(body.len()).map_err(|_| bad("it is too large"))?;
        if let Some((folder, _)) = path.rsplit_once('/')
            && !folder.is_empty()
        {
            self.folder(folder)?;
        }
        if !self.names.insert(path.to_owned()) {
            return Err(bad("it is there already"));
        }
        self.write(inside, mode, device, length, body);
        Ok(())
    }

    fn write(&mut self, name: &str, mode: u32, device: (u32, u32), length: u32, body: &[u8]) {
        self.number += 1;
        // Names of ours are short; a longer one is refused by the kernel, not by the format.
        let name_length = u32::try_from(name.len() + 1).unwrap_or(u32::MAX);
        let links = if mode & 0o170_000 == 0o040_000 { 2 } else { 1 };
        let (number, (major, minor)) = (self.number, device);
        self.bytes.extend_from_slice(b"070701");
        for field in [
            number,
            mode,
            0,
            0,
            links,
            0,
            length,
            0,
            0,
            major,
            minor,
            name_length,
            0,
        ] {
            self.bytes
                .extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad(4);
        self.bytes.extend_from_slice(body);
        self.pad(4);
    }

    fn pad(&mut self, to: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(to), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        self.number = 0; // as cpio(1) numbers it
        self.write("TRAILER!!!", 0, (0, 0), 0, &[]);
        self.pad(512);
        self.bytes
    }
}

#[cfg(test)]
mod tests;
