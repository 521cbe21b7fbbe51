//! The types that C only ever sees handles of.

/// Types of the header that nothing is ever one of.
macro_rules! opaque {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug)]
            #[repr(C)]
            #[allow(non_camel_case_types)]
            pub struct $name {
                _nothing: [u8; 0],
            }
        )*
    };
}

opaque! {
    /// A writer that gathers replies.
    stopgap_writer;
    /// One end of a channel.
    stopgap_channel;
    /// Where a server waits for clients.
    stopgap_listener;
    /// A locked set.
    stopgap_set;
    /// Memory of a locked set.
    stopgap_held;
    /// Address space, and buffers in it.
    stopgap_arena;
    /// A chunked buffer.
    stopgap_buffer;
}
