//! Reads a fact from the kernel's BTF that the programs' loader does not give: the offsets of per-CPU variables.
//!
//! Layout: `struct btf_header`, types, strings (include/uapi/linux/btf.h).

/// Offset of the preempt count in `pcpu_hot`. Before 6.2 and since 6.15, x86-64 has it in a variable of its own,
/// `__preempt_count`.
const IN_PCPU_HOT: u32 = 8;

/// Returns the distance in bytes from a CPU's `runqueues` to its preempt count. `None` where it is unknown: arm64 has
/// the count in the thread, and the BTF may be damaged.
pub(crate) fn preempt_offset(btf: &[u8]) -> Option<i64> {
    let per_cpu = Variables::read(btf)?;
    let queue = i64::from(per_cpu.offset(b"runqueues")?);
    let own = per_cpu.offset(b"__preempt_count");
    let count = own.or_else(|| Some(per_cpu.offset(b"pcpu_hot")? + IN_PCPU_HOT))?;
    Some(i64::from(count) - queue)
}

/// Names of variables by type id, and the offsets of those in the per-CPU section.
struct Variables<'a> {
    names: std::collections::HashMap<u32, &'a [u8]>,
    offsets: Vec<(u32, u32)>,
}

impl<'a> Variables<'a> {
    fn offset(&self, name: &[u8]) -> Option<u32> {
        let mut entries = self.offsets.iter();
        let (_, offset) = entries.find(|(id, _)| self.names.get(id) == Some(&name))?;
        Some(*offset)
    }

    fn read(btf: &'a [u8]) -> Option<Variables<'a>> {
        if u16_at(btf, 0)? != 0xeb9f {
            return None;
        }
        let header = u32_at(btf, 4)? as usize;
        let section = |at: usize| -> Option<&'a [u8]> {
            let begin = header.checked_add(u32_at(btf, at)? as usize)?;
            btf.get(begin..begin.checked_add(u32_at(btf, at + 4)? as usize)?)
        };
        let (types, strings) = (section(8)?, section(16)?);
        let name = |offset: u32| -> Option<&'a [u8]> {
            let rest = strings.get(offset as usize..)?;
            rest.split(|&byte| byte == 0).next()
        };
        let mut found = Variables {
            names: std::collections::HashMap::new(),
            offsets: Vec::new(),
        };
        let (mut at, mut id) = (0, 0);
        while at < types.len() {
            id += 1;
            let (called, info) = (u32_at(types, at)?, u32_at(types, at + 4)?);
            let (kind, members) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
            let body = at + 12;
            // Bytes after the type's own 12, by its kind (BTF_KIND_*).
            let more = match kind {
                1 | 17 => 4,               // INT, DECL_TAG
                3 => 12,                   // ARRAY
                4 | 5 => 12 * members,     // STRUCT, UNION
                6 => 8 * members,          // ENUM
                13 => 8 * members,         // FUNC_PROTO
                14 => 4,                   // VAR
                15 => 12 * members,        // DATASEC
                19 => 12 * members,        // ENUM64
                2 | 7..=12 | 16 | 18 => 0, // PTR, FWD, TYPEDEF, qualifiers, FUNC, FLOAT, TYPE_TAG
                _ => return None,
            };
            if kind == 14 {
                found.names.insert(id, name(called)?);
            }
            if kind == 15 && name(called)? == b".data..percpu" {
                for entry in 0..members {
                    let entry = body + 12 * entry;
                    found
                        .offsets
                        .push((u32_at(types, entry)?, u32_at(types, entry + 4)?));
                }
            }
            at = body + more;
        }
        Some(found)
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(
        bytes.get(at..at.checked_add(4)?)?.try_into().ok()?,
    ))
}
