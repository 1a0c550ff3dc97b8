"""Writes what a wheel requires, without optional extras and without what comes from elsewhere.

usage: requirements.py WHEEL FILE
"""

import email
import re
import sys
import zipfile

# Of a build that the registry does not have, and what belongs to it.
ELSEWHERE = {"torch", "torchaudio", "torchvision", "intel-openmp"}


def main(wheel, file):
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(name))
    with open(file, "w") as out:
        for line in metadata.get_all("Requires-Dist") or []:
            project = re.match(r"[A-Za-z0-9._-]+", line).group().lower().replace("_", "-")
            if "extra ==" not in line and project not in ELSEWHERE:
                print(line, file=out)


main(*sys.argv[1:])
