//! Parameters of kernel modules, one a line, and the answers of SNP checkers.

use super::Material;

/// Parameters that bear on this.
const NAMES: [&str; 6] = ["sev", "sev_es", "sev_snp", "avic", "NVreg_", "DmaRemapPeerMmio"];

/// Reads a listing; whether it is one.
pub fn read(text: &str, material: &mut Material) -> bool {
    let before = material.parameters.len();
    for line in text.lines() {
        let line = line.trim();
        if let Some(rest) = line.strip_prefix("[ PASS ]").or_else(|| line.strip_prefix("[ FAIL ]"))
        {
            let passed = if line.starts_with("[ PASS") { "yes" } else { "no" };
            let name = rest.trim().trim_start_matches("- ").trim();
            if name.starts_with("SNP") || name.starts_with("SME") || name.starts_with("RMP") {
                material.parameters.insert(name.to_owned(), passed.to_owned());
            }
            continue;
        }
        let Some((name, value)) = line.split_once(['=', ':']) else { continue };
        let name = name.trim().rsplit('/').next().unwrap_or_default();
        let known =
            NAMES.iter().any(|one| name == *one || one.ends_with('_') && name.starts_with(one));
        if known {
            material.parameters.insert(name.to_owned(), value.trim().to_owned());
        }
    }
    material.parameters.len() > before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_and_checks() {
        let mut material = Material::default();
        assert!(read("sev=Y\nsev_snp=N\n", &mut material));
        assert!(read("[ PASS ]       - SNP initialized\n", &mut material));
        assert_eq!(material.parameters["sev_snp"], "N");
        assert_eq!(material.parameters["SNP initialized"], "yes");
        assert!(!read("x=1\n", &mut Material::default()));
    }
}
