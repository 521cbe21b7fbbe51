//! OpenGL ES pixel-buffer objects, through EGL without a surface: what mail 000 measured with, on any driver that this
//! machine has. `libEGL` is loaded when it is asked for and hands out the rest; Mesa's software renderer serves where
//! there is no card (Debian: libegl1, libgles2, libgl1-mesa-dri).

use std::ptr::NonNull;

use glow::HasContext;
use khronos_egl as egl;
use stopgap_events::units::Bytes;

use crate::devices::{Handle, Object, ObjectDevice, not_mapped};
use crate::error::{Error, Result};
use crate::memory::Memory;

type Egl = egl::DynamicInstance<egl::EGL1_5>;

/// The name that the library has had since there is an ABI of it.
const LIBRARY: &str = "libEGL.so.1";
const PACKAGES: &str = "install libegl1, libgles2 and libgl1-mesa-dri (or your card's driver)";
/// `EGL_PLATFORM_SURFACELESS_MESA` (EGL_MESA_platform_surfaceless).
const SURFACELESS: egl::Enum = 0x31DD;
const SURFACELESS_NAME: &str = "EGL_MESA_platform_surfaceless";
/// Where the buffers are bound: pixels on their way to the card.
const TARGET: u32 = glow::PIXEL_UNPACK_BUFFER;

/// A context that draws nothing.
pub(super) struct Gl {
    egl: Egl,
    display: egl::Display,
    context: egl::Context,
    gl: glow::Context,
    renderer: String,
    page: u64,
}

fn refused(call: &'static str, error: egl::Error) -> Error {
    Error::unsupported("gl", format!("{call}: {error}; {PACKAGES}"))
}

impl Gl {
    pub(super) fn open() -> Result<Gl> {
        if cfg!(target_feature = "crt-static") {
            let why = format!(
                "this build of stopgap is static, and a static program cannot load {LIBRARY}; build it without crt-static"
            );
            return Err(Error::unsupported("gl", why));
        }
        // SAFETY: loading runs the library's initialisers; it is the system's own EGL, by the name
        // that every program loads it by, and it stays loaded as long as anything of it is used.
        let egl = unsafe { Egl::load_required_from_filename(LIBRARY) }.map_err(|error| {
            Error::unsupported("gl", format!("{LIBRARY}: {error:?}; {PACKAGES}"))
        })?;
        let extensions = egl.query_string(None, egl::EXTENSIONS);
        let surfaceless =
            extensions.is_ok_and(|all| all.to_string_lossy().contains(SURFACELESS_NAME));
        let display = match surfaceless {
            // SAFETY: this platform takes the default display, which is a null pointer.
            true => unsafe {
                egl.get_platform_display(SURFACELESS, egl::DEFAULT_DISPLAY, &[egl::ATTRIB_NONE])
            }
            .map_err(|error| refused("eglGetPlatformDisplay", error))?,
            // A driver of its own may make contexts without a surface on its default display.
            // SAFETY: the default display is a null pointer.
            false => unsafe { egl.get_display(egl::DEFAULT_DISPLAY) }.ok_or_else(|| {
                Error::unsupported("gl", format!("EGL has no display; {PACKAGES}"))
            })?,
        };
        egl.initialize(display)
            .map_err(|error| refused("eglInitialize", error))?;
        egl.bind_api(egl::OPENGL_ES_API)
            .map_err(|error| refused("eglBindAPI", error))?;
        let wanted = [
            egl::SURFACE_TYPE,
            0,
            egl::RENDERABLE_TYPE,
            egl::OPENGL_ES3_BIT,
            egl::NONE,
        ];
        let config = egl
            .choose_first_config(display, &wanted)
            .map_err(|error| refused("eglChooseConfig", error))?;
        let config =
            config.ok_or_else(|| Error::unsupported("gl", "this EGL has no OpenGL ES 3"))?;
        let version = [egl::CONTEXT_MAJOR_VERSION, 3, egl::NONE];
        let context = egl
            .create_context(display, config, None, &version)
            .map_err(|error| refused("eglCreateContext", error))?;
        egl.make_current(display, None, None, Some(context))
            .map_err(|error| refused("eglMakeCurrent", error))?;
        let address = |name: &str| {
            egl.get_proc_address(name)
                .map_or(std::ptr::null(), |f| f as *const _)
        };
        // SAFETY: the functions are those of the context that is current in this thread, and EGL 1.5
        // gives the address of every function of OpenGL ES.
        let gl = unsafe { glow::Context::from_loader_function(address) };
        // SAFETY: the context is current.
        let renderer = unsafe { gl.get_parameter_string(glow::RENDERER) };
        let page = super::super::Linux.page_size().0;
        Ok(Gl {
            egl,
            display,
            context,
            gl,
            renderer,
            page,
        })
    }

    /// Returns what went wrong since the last call.
    fn check(&self, call: &'static str, on: Bytes) -> Result<()> {
        // SAFETY: the context is current.
        match unsafe { self.gl.get_error() } {
            glow::NO_ERROR => Ok(()),
            glow::OUT_OF_MEMORY => Err(Error::refusal(call, on, libc::ENOMEM)),
            error => Err(Error::unsupported(
                format!("{call} {on}"),
                format!("GL error {error:#x}"),
            )),
        }
    }

    fn name(object: &Object) -> Result<glow::Buffer> {
        match object.handle {
            Handle::Gl(name, _) => Ok(name),
            _ => Err(Error::unsupported("a buffer", "another device made it")),
        }
    }

    /// Its length as GL has it, which is signed.
    fn length(object: &Object) -> Result<i32> {
        i32::try_from(object.length.0).map_err(|error| Error::parse("a buffer's length", error))
    }
}

impl ObjectDevice for Gl {
    fn describe(&self) -> String {
        self.renderer.clone()
    }

    fn memory(&self) -> &dyn Memory {
        &super::super::Linux
    }

    fn create(&mut self, length: Bytes) -> Result<Object> {
        let length = length.page_aligned(Bytes(self.page));
        let size =
            i32::try_from(length.0).map_err(|error| Error::parse("a buffer's length", error))?;
        // SAFETY: the context is current; no data is handed over.
        let name = unsafe {
            let name = self.gl.create_buffer();
            let name = name.map_err(|error| Error::unsupported("glGenBuffers", error))?;
            self.gl.bind_buffer(TARGET, Some(name));
            self.gl.buffer_data_size(TARGET, size, glow::STREAM_DRAW);
            name
        };
        let object = Object::new(Handle::Gl(name, None), length);
        match self.check("glBufferData", length) {
            Ok(()) => Ok(object),
            Err(error) => {
                self.destroy(object)?;
                Err(error)
            }
        }
    }

    fn map(&mut self, object: &mut Object) -> Result<()> {
        let (name, length) = (Gl::name(object)?, Gl::length(object)?);
        if matches!(object.handle, Handle::Gl(_, Some(_))) {
            return Ok(());
        }
        // SAFETY: the context is current, the buffer is ours and not mapped; what comes back is
        // null or points to `length` bytes, until it is unmapped.
        let pointer = unsafe {
            self.gl.bind_buffer(TARGET, Some(name));
            self.gl
                .map_buffer_range(TARGET, 0, length, glow::MAP_WRITE_BIT)
        };
        let Some(pointer) = NonNull::new(pointer) else {
            self.check("glMapBufferRange", object.length)?;
            return Err(Error::unsupported(
                "glMapBufferRange",
                "gave nothing and no error",
            ));
        };
        object.handle = Handle::Gl(name, Some(pointer));
        Ok(())
    }

    fn touch(&mut self, object: &mut Object) -> Result<()> {
        let Handle::Gl(_, Some(pointer)) = object.handle else {
            return Err(not_mapped("touch"));
        };
        let length = usize::try_from(object.length.0).unwrap_or(usize::MAX);
        let page = usize::try_from(self.page).unwrap_or(usize::MAX);
        for at in (0..length).step_by(page) {
            // SAFETY: the byte lies within the `length` bytes that are mapped for writing, and no
            // reference to them exists.
            unsafe { pointer.add(at).write_volatile(1) };
        }
        Ok(())
    }

    fn unmap(&mut self, object: &mut Object) -> Result<()> {
        let Handle::Gl(name, Some(_)) = object.handle else {
            return Err(not_mapped("glUnmapBuffer"));
        };
        object.handle = Handle::Gl(name, None);
        // SAFETY: the context is current and the buffer mapped; nobody keeps the pointer.
        unsafe {
            self.gl.bind_buffer(TARGET, Some(name));
            self.gl.unmap_buffer(TARGET);
        }
        self.check("glUnmapBuffer", object.length)
    }

    fn destroy(&mut self, object: Object) -> Result<()> {
        let name = Gl::name(&object)?;
        // SAFETY: the context is current; a buffer that is mapped is unmapped by it.
        unsafe { self.gl.delete_buffer(name) };
        Ok(())
    }
}

impl Drop for Gl {
    fn drop(&mut self) {
        // A failure leaves nothing that outlives the process.
        let _ = self.egl.make_current(self.display, None, None, None);
        let _ = self.egl.destroy_context(self.display, self.context);
        let _ = self.egl.terminate(self.display);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stopgap_testing::{Skip, skip};

    /// On Mesa's software renderer, or another driver of this machine.
    #[test]
    fn buffers_are_made_mapped_touched_and_deleted() {
        let mut gl = match Gl::open() {
            Ok(gl) => gl,
            Err(error) => return skip(&Skip::program(error)),
        };
        assert!(!gl.describe().is_empty());
        let mut objects: Vec<Object> = (0..100).map(|_| gl.create(Bytes(4_000)).unwrap()).collect();
        for object in &mut objects {
            assert!(gl.touch(object).is_err(), "not mapped yet");
            gl.map(object).unwrap();
            gl.map(object).unwrap();
            gl.touch(object).unwrap();
            gl.unmap(object).unwrap();
            assert!(gl.unmap(object).is_err());
        }
        gl.map(&mut objects[7]).unwrap();
        for object in objects {
            gl.destroy(object).unwrap();
        }
        assert!(gl.create(Bytes(1 << 40)).is_err(), "longer than GL can say");
    }
}
