#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Brings the lanes of one file to a host, and shows niclane's plan as the diff."""

import os
import tempfile

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: niclane_lanes
short_description: Lanes through a host's network cards
description:
  - Puts a lanes file on the host and applies it with a time to confirm.
  - Shows the changes of C(niclane plan) as the difference. In check mode nothing is written.
options:
  path: {description: The lanes file on the host., type: path, required: true}
  lanes: {description: Its content; empty for no file (with undo)., type: str, required: true}
  confirm_within: {description: The host undoes the apply after this time unless it is confirmed., type: str, default: 60s}
  undo: {description: Roll back what is applied first., type: bool, default: false}
"""

RETURN = r"""
pending: {description: An apply waits for niclane confirm., type: bool}
before: {description: The file's old content; empty if there was no file., type: str}
"""


def read(path):
    try:
        with open(path, encoding="utf-8") as f:
            return f.read()
    except FileNotFoundError:
        return ""


def write(module, path, text):
    """Replaces the whole file, or removes it if there is no text."""
    if not text:
        if os.path.exists(path):
            os.remove(path)
        return
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    fd, name = tempfile.mkstemp(dir=module.tmpdir)
    with os.fdopen(fd, "w", encoding="utf-8") as f:
        f.write(text)
    os.chmod(name, 0o644)
    module.atomic_move(name, path)


def niclane(module, *args, ok=(0,), **kwargs):
    code, out, err = module.run_command(["niclane", *args], **kwargs)
    if code not in ok:
        module.fail_json(msg=f"niclane {args[0]}: {err or out}".strip(), rc=code, stdout=out, stderr=err)
    return code, out


def undo(module, path, before):
    """Rolls back what is applied, and restores the old file and its lanes."""
    if module.check_mode:
        module.exit_json(changed=True)
    niclane(module, "rollback", path)
    # Ends the wait for a confirmation, which would block the next apply. Exit code
    # 1: nothing is left to confirm.
    niclane(module, "confirm", ok=(0, 1))
    write(module, path, before)
    if before:
        niclane(module, "apply", "--confirm-within", "0", path)
    module.exit_json(changed=True)


def main():
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "lanes": {"type": "str", "required": True},
            "confirm_within": {"type": "str", "default": "60s"},
            "undo": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    path, lanes = module.params["path"], module.params["lanes"]
    if module.params["undo"]:
        undo(module, path, lanes)
    if module.check_mode and not module.get_bin_path("niclane"):
        module.exit_json(changed=True, pending=False, before="", diff={"prepared": "niclane is not installed yet\n"})

    before = read(path)
    code, plan = niclane(module, "plan", "--stdin", path, ok=(0, 3), data=lanes, binary_data=True)
    result = {
        "changed": code == 3 or before != lanes,
        "pending": False,
        "before": before,
        "diff": [{"prepared": plan}] if code == 3 else [],
    }
    if before != lanes:
        result["diff"].append({"before_header": path, "after_header": path, "before": before, "after": lanes})
    if module.check_mode or not result["changed"]:
        module.exit_json(**result)

    write(module, path, lanes)
    if code == 3:
        code, out, err = module.run_command(["niclane", "apply", "--confirm-within", module.params["confirm_within"], path])
        if code != 0:
            # apply has undone what it did; the file goes back as well.
            write(module, path, before)
            module.fail_json(msg=f"niclane apply: {err or out}".strip(), **dict(result, changed=False))
        result["pending"] = True
    module.exit_json(**result)


if __name__ == "__main__":
    main()
