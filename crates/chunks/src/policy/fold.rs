//! Doug Anderson's proposal in mail 001: "start allocating of order 4. Upon the first failure we jump to
//! order 1."
//!
//! Order 4 is 64 KiB with his base pages, and so it is here with others. He made it of `sticky`, so the end
//! of a buffer that had no failure is filled with orders below 4.

use super::buffer::Buffer;
use super::{BuildError, Built, Effort, Request, Source};

pub(super) fn build(request: &Request, source: &mut dyn Source) -> Result<Built, BuildError> {
    let mut order = request.order_of(1 << 16);
    let mut buffer = Buffer::new(request.pages, source);
    while buffer.left() > 0 {
        order = order.min(buffer.largest());
        let effort = if order == 0 {
            Effort::Must
        } else {
            Effort::NoRetry
        };
        if buffer.allocate(order, effort) {
            continue;
        }
        order = match order {
            0 => return Err(buffer.exhausted()),
            1 => 0,
            _ => 1,
        };
    }
    Ok(buffer.done())
}
