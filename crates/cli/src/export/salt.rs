//! The salt of anonymous exports: 32 random bytes in the user's state directory, mode 0600. It is made once, so that a name
//! has the same hash in all traces that the user gives away.

use std::fs::File;
use std::io::{self, Read};

use stopgap_kernel::folder::Folder;

use crate::failure::Failure;
use crate::places;
use crate::whole_file;

const NAME: &str = "salt";
const BYTES: usize = 32;

/// Returns the salt of this user; makes it where there is none.
///
/// # Errors
/// Where there is no state directory, or what has the name there is no salt.
pub(super) fn get() -> Result<[u8; BYTES], Failure> {
    let directory = places::records(None)?;
    let path = directory.join(NAME);
    let refuse = |why: &dyn std::fmt::Display| {
        Failure::error(format!(
            "cannot use {}, the salt of --anonymous: {why}",
            path.display()
        ))
    };
    let folder = Folder::open(&directory).map_err(|error| refuse(&error))?;
    let read = || folder.content(NAME.as_ref(), BYTES as u64 + 1);
    let content = match read() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let mut salt = [0; BYTES];
            File::open("/dev/urandom")
                .and_then(|mut random| random.read_exact(&mut salt))
                .and_then(|()| whole_file::write(&path, salt))
                .and_then(|()| read())
        }
        content => content,
    };
    let content = content.map_err(|error| refuse(&error))?;
    let length = content.len();
    content.try_into().map_err(|_| {
        refuse(&format_args!(
            "it has {length} bytes or more, not {BYTES}; remove it, and later exports have other hashes"
        ))
    })
}
