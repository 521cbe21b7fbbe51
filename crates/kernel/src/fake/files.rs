use std::path::{Path, PathBuf};

use stopgap_events::units::{Bytes, Nanos};

use super::{Fake, State};
use crate::error::{Error, Result};
use crate::files::{Entry, Files, Kind};
use crate::tracefs::{PLACES, Tracefs};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Node {
    File(Vec<u8>),
    Directory,
    Link(PathBuf),
}

/// Change of a file at a point in time: a new content, or its removal.
#[derive(Debug)]
pub(super) struct Change {
    at: Nanos,
    path: PathBuf,
    content: Option<Vec<u8>>,
}

/// Writes that fail for a while.
#[derive(Debug)]
pub(super) struct Failing {
    pub(super) path: PathBuf,
    pub(super) errno: i32,
    /// How often still.
    pub(super) times: u32,
}

impl State {
    /// The error of this write, where it is one of those that fail.
    fn fail_write(&mut self, path: &Path) -> Result<()> {
        let fails = |failing: &&mut Failing| failing.times > 0 && path.starts_with(&failing.path);
        match self.failing_writes.iter_mut().find(fails) {
            Some(failing) => {
                failing.times -= 1;
                Err(Error::refusal("write", path.display(), failing.errno))
            }
            None => Ok(()),
        }
    }

    /// Carries out what was to change by now.
    pub(super) fn change_due_files(&mut self) {
        let now = Nanos(self.now_ns);
        let (due, later) = std::mem::take(&mut self.later)
            .into_iter()
            .partition(|change: &Change| change.at <= now);
        self.later = later;
        for change in due {
            match change.content {
                Some(content) => self.put(&change.path, &content),
                None => self.files.retain(|file, _| !file.starts_with(&change.path)),
            }
        }
    }

    /// Lets pass what a read of this file waits for.
    fn wait_for_read(&mut self, path: &Path) {
        let mut waits = self.waiting_reads.iter();
        if let Some(&(_, Nanos(wait))) = waits.find(|(at, _)| path.starts_with(at)) {
            self.now_ns += wait;
            self.waited_ns += wait;
            self.change_due_files();
        }
    }

    fn refuse_read(&self, call: &'static str, path: &Path) -> Result<()> {
        let refused = |(at, errno): &(PathBuf, i32)| path.starts_with(at).then_some(*errno);
        match self.refused_reads.iter().find_map(refused) {
            Some(errno) => Err(Error::refusal(call, path.display(), errno)),
            None => Ok(()),
        }
    }

    pub(super) fn put(&mut self, path: &Path, content: &[u8]) {
        for parent in path.ancestors().skip(1) {
            self.files
                .entry(parent.to_owned())
                .or_insert(Node::Directory);
        }
        self.files
            .insert(path.to_owned(), Node::File(content.to_vec()));
    }

    fn refuse(&self, call: &'static str, path: &Path) -> Result<()> {
        match self.refused_writes.iter().any(|at| path.starts_with(at)) {
            true => Err(Error::refusal(call, path.display(), libc::EACCES)),
            false => Ok(()),
        }
    }
}

impl Fake {
    /// With reads of `path` and below it refused with this error number.
    #[must_use]
    pub fn unreadable(self, path: impl AsRef<Path>, errno: i32) -> Fake {
        let path = path.as_ref().to_owned();
        self.state().refused_reads.push((path, errno));
        self
    }

    /// With each read of `path` and below it kept off the CPU so long, as beside a busy neighbour.
    #[must_use]
    pub fn with_waiting_reads(self, path: impl AsRef<Path>, wait: Nanos) -> Fake {
        let path = path.as_ref().to_owned();
        self.state().waiting_reads.push((path, wait));
        self
    }

    /// With another content in this file from the point `at` on the virtual clock on; `None`:
    /// the file, and what is below it, is gone then.
    #[must_use]
    pub fn later(self, at: Nanos, path: impl AsRef<Path>, content: Option<&str>) -> Fake {
        self.state().later.push(Change {
            at,
            path: path.as_ref().to_owned(),
            content: content.map(|text| text.as_bytes().to_vec()),
        });
        self
    }

    /// With a symbolic link.
    #[must_use]
    pub fn with_link(self, path: impl AsRef<Path>, to: impl AsRef<Path>) -> Fake {
        let path = path.as_ref();
        self.put(path, "");
        self.state()
            .files
            .insert(path.to_owned(), Node::Link(to.as_ref().to_owned()));
        self
    }
}

/// What a file holds after a write: of a knob with the chosen word in brackets, its words with
/// the new one chosen (`None` where it has no such word); of another, what was written.
fn choose(old: &[u8], new: &[u8]) -> Option<Vec<u8>> {
    let (text, word) = (str::from_utf8(old), str::from_utf8(new));
    let (Ok(text), Ok(word)) = (text, word) else {
        return Some(new.to_vec());
    };
    if !text.contains('[') {
        return Some(new.to_vec());
    }
    let bare = text.replace(['[', ']'], "");
    let words: Vec<String> = bare
        .split_whitespace()
        .map(|known| match known == word {
            true => format!("[{known}]"),
            false => known.to_owned(),
        })
        .collect();
    let chosen = words.iter().any(|known| known.starts_with('['));
    chosen.then(|| words.join(" ").into_bytes())
}

impl Files for Fake {
    fn read(&self, path: &Path) -> Result<Vec<u8>> {
        self.state().wait_for_read(path);
        self.state().refuse_read("open", path)?;
        if path == Path::new("/proc/self/maps") && !self.state().files.contains_key(path) {
            return Ok(self.print_maps());
        }
        match self.state().files.get(path) {
            Some(Node::File(content)) => Ok(content.clone()),
            Some(_) => Err(Error::refusal("read", path.display(), libc::EISDIR)),
            None => Err(Error::refusal("open", path.display(), libc::ENOENT)),
        }
    }

    /// The lines of the file `/dev/kmsg`; an empty log where there is none.
    fn kernel_log(&self) -> Result<Vec<String>> {
        match self.read(Path::new("/dev/kmsg")) {
            Err(error) if error.is_absent() => Ok(Vec::new()),
            other => {
                let text = String::from_utf8_lossy(&other?).into_owned();
                Ok(text.lines().map(str::to_owned).collect())
            }
        }
    }

    fn read_own(&self, path: &Path) -> Result<Vec<u8>> {
        self.read(path)
    }

    fn entry(&self, path: &Path) -> Result<Entry> {
        self.state().refuse_read("lstat", path)?;
        let kind = match self.state().files.get(path) {
            Some(Node::File(_)) => Kind::Regular,
            Some(Node::Directory) => Kind::Directory,
            Some(Node::Link(_)) => Kind::Other,
            None => return Err(Error::refusal("lstat", path.display(), libc::ENOENT)),
        };
        // A file system of its own begins at a top folder that is called as one of the kernel's.
        let own = ["/proc", "/sys"].iter().any(|at| path.starts_with(at));
        Ok(Entry {
            kind,
            device: u64::from(own),
        })
    }

    /// A millisecond a file.
    fn populate(&self, path: &Path, go_on: &dyn Fn() -> bool) -> Result<Bytes> {
        let content = self.read(path)?;
        if !go_on() {
            return Ok(Bytes(0));
        }
        self.pass(Nanos::millis(1));
        Ok(Bytes(content.len() as u64))
    }

    fn read_at(&self, path: &Path, offset: u64, length: usize) -> Result<Vec<u8>> {
        let content = self.read(path)?;
        let start = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(content.len());
        let end = start.saturating_add(length).min(content.len());
        Ok(content[start..end].to_vec())
    }

    fn write(&self, path: &Path, content: &[u8]) -> Result<()> {
        let mut state = self.state();
        state.refuse("write", path)?;
        state.fail_write(path)?;
        match state.files.get_mut(path) {
            Some(Node::File(old)) => {
                let chosen = choose(old, content);
                *old =
                    chosen.ok_or_else(|| Error::refusal("write", path.display(), libc::EINVAL))?;
                Ok(())
            }
            Some(_) => Err(Error::refusal("write", path.display(), libc::EISDIR)),
            None => Err(Error::refusal("open", path.display(), libc::ENOENT)),
        }
    }

    fn create(&self, path: &Path, content: &[u8]) -> Result<()> {
        let mut state = self.state();
        state.refuse("open", path)?;
        let parent = path.parent().unwrap_or(Path::new("/"));
        if state.files.get(parent) != Some(&Node::Directory) {
            return Err(Error::refusal("open", path.display(), libc::ENOENT));
        }
        if state.files.contains_key(path) {
            return Err(Error::refusal("open", path.display(), libc::EEXIST));
        }
        state.put(path, content);
        Ok(())
    }

    fn extend(&self, path: &Path, length: Bytes, _allocated: bool) -> Result<()> {
        let mut content = self.read(path)?;
        content.resize(usize::try_from(length.0).unwrap_or(usize::MAX), 0);
        self.write(path, &content)
    }

    /// At 1 GiB/s.
    fn stream(&self, path: &Path, go_on: &dyn Fn(Bytes) -> bool) -> Result<Bytes> {
        use crate::clock::Clock;
        if !go_on(Bytes(0)) {
            return Ok(Bytes(0));
        }
        let length = self.read(path)?.len() as u64;
        self.sleep_until(self.now() + Nanos(length));
        Ok(Bytes(length))
    }

    fn list(&self, path: &Path) -> Result<Vec<String>> {
        let state = self.state();
        state.refuse_read("opendir", path)?;
        if state.files.get(path) != Some(&Node::Directory) {
            return Err(Error::refusal("opendir", path.display(), libc::ENOENT));
        }
        let inside = state.files.keys().filter(|f| f.parent() == Some(path));
        Ok(inside
            .filter_map(|f| Some(f.file_name()?.to_string_lossy().into_owned()))
            .collect())
    }

    fn link(&self, path: &Path) -> Result<PathBuf> {
        match self.state().files.get(path) {
            Some(Node::Link(to)) => Ok(to.clone()),
            Some(_) => Err(Error::refusal("readlink", path.display(), libc::EINVAL)),
            None => Err(Error::refusal("readlink", path.display(), libc::ENOENT)),
        }
    }

    fn make_dir(&self, path: &Path) -> Result<()> {
        let mut state = self.state();
        state.refuse("mkdir", path)?;
        if state.files.contains_key(path) {
            return Err(Error::refusal("mkdir", path.display(), libc::EEXIST));
        }
        let parent = path.parent().unwrap_or(Path::new("/"));
        if state.files.get(parent) != Some(&Node::Directory) {
            return Err(Error::refusal("mkdir", path.display(), libc::ENOENT));
        }
        state.files.insert(path.to_owned(), Node::Directory);
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        let mut state = self.state();
        state.refuse("rmdir", path)?;
        if state.files.get(path) != Some(&Node::Directory) {
            return Err(Error::refusal("rmdir", path.display(), libc::ENOENT));
        }
        // As on cgroupfs, files inside go with it; directories do not.
        let below = |file: &Path| file != path && file.starts_with(path);
        let nested = state
            .files
            .iter()
            .any(|(file, node)| below(file) && *node == Node::Directory);
        if nested {
            return Err(Error::refusal("rmdir", path.display(), libc::EBUSY));
        }
        state.files.retain(|file, _| !file.starts_with(path));
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        let mut state = self.state();
        state.refuse("unlink", path)?;
        match state.files.remove(path) {
            Some(_) => Ok(()),
            None => Err(Error::refusal("unlink", path.display(), libc::ENOENT)),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let mut state = self.state();
        state.refuse("rename", to)?;
        match state.files.remove(from) {
            Some(node) => {
                state.files.insert(to.to_owned(), node);
                Ok(())
            }
            None => Err(Error::refusal("rename", from.display(), libc::ENOENT)),
        }
    }

    fn is_private(&self, _path: &Path) -> Result<bool> {
        Ok(true)
    }

    fn tracefs(&self) -> Result<Tracefs> {
        let place = Path::new(PLACES[0]);
        match self.list(&place.join("events")) {
            Ok(_) => Ok(Tracefs::mounted(place)),
            Err(_) => Err(Error::unsupported("trace events (tracefs)", "not mounted")),
        }
    }

    fn swap(&self, path: &Path, _on: bool) -> Result<()> {
        self.read(path).map(drop)
    }
}
