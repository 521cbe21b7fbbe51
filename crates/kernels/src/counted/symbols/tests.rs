use crate::functions::UNKNOWN;

use super::Symbols;

/// Lines of a System.map of Debian's, some left out.
const MAP: &str = "\
0000000000000000 D __per_cpu_start
ffffffff81000000 T _stext
ffffffff81000000 T _text
ffffffff81000000 T startup_64
ffffffff810ebc60 T do_mmap
ffffffff810ebc60 t __pfx_like
ffffffff810ec1b0 T __x64_sys_remap_file_pages
ffffffff810ec1b0 T __ia32_sys_remap_file_pages
ffffffff810ec500 t mas_wr_store.isra.0
ffffffff810ec600 t do_mmap.cold
ffffffff81600000 T _etext
ffffffff81600000 R __start_rodata
ffffffff81c18000 B _end
";

#[test]
fn an_address_lies_in_the_function_before_it() {
    let symbols = Symbols::parse(MAP).unwrap();
    for (address, name) in [
        (0xffff_ffff_8100_0000, "startup_64"),
        (0xffff_ffff_810e_bc5f, "startup_64"),
        (0xffff_ffff_810e_bc60, "do_mmap"),
        (0xffff_ffff_810e_c1af, "do_mmap"),
        (0xffff_ffff_810e_c1b0, "__x64_sys_remap_file_pages"),
        (0xffff_ffff_810e_c500, "mas_wr_store"),
        (0xffff_ffff_810e_c600, "do_mmap"),
        (0xffff_ffff_8160_0000, UNKNOWN),
        (0xffff_ffff_81c1_8000, UNKNOWN),
        (0xffff_ffff_c000_0000, UNKNOWN),
        (0xffff_ffff_80ff_ffff, UNKNOWN),
        (0, UNKNOWN),
    ] {
        assert_eq!(symbols.name(address), name, "{address:x}");
    }
    assert_eq!(symbols.starts.len(), 7);
}

/// As the guest reads them: modules are named.
#[test]
fn kallsyms_has_modules() {
    let text = format!("{MAP}ffffffffc0001000 t vgem_gem_create\t[vgem]\n");
    let symbols = Symbols::parse(&text).unwrap();
    assert_eq!(
        symbols.name(0xffff_ffff_c000_1234),
        "vgem_gem_create [vgem]"
    );
}

/// A list of code alone: what comes after the last function is not that function's.
#[test]
fn code_ends_where_it_says_so() {
    let code = MAP.lines().filter(|line| line.contains(" T "));
    let symbols = Symbols::parse(&code.collect::<Vec<_>>().join("\n")).unwrap();
    assert_eq!(symbols.name(0xffff_ffff_c000_1234), UNKNOWN);
}

#[test]
fn what_is_no_list_of_functions_is_refused() {
    let hidden = "0000000000000000 T startup_64\n0000000000000000 T do_mmap\n";
    let none = "no function is among the symbols";
    for (text, why) in [
        ("", none),
        ("ffffffff81c18000 B _end\n", none),
        (
            hidden,
            "the addresses of symbols are hidden (kernel.kptr_restrict)",
        ),
        ("ffffffff81000000 T\n", "line 1 is no symbol"),
        ("\u{7f}ELF\n", "line 1 is no symbol"),
        ("ffffffff81000000 T a b c\n", "line 1 is no symbol"),
        ("xyz T startup_64\n", "line 1 has no address"),
        ("fffffffff81000000 T startup_64\n", "line 1 has no address"),
    ] {
        assert_eq!(Symbols::parse(text), Err(why.to_owned()), "{text:?}");
    }
}
