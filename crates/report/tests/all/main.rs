//! Pages of records as text and in a browser.

mod chromium;
mod common;
mod html;
