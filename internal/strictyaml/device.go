// SPDX-License-Identifier: Apache-2.0

package strictyaml

// NetworkDevice is the name of an interface as the kernel's dev_valid_name()
// has it.
func NetworkDevice() Kind[string] {
	const want = "the name of a network device, 1 to 15 characters"
	return Pattern(want, `^[^\s/:]{1,15}$`, func(s string) string {
		if s == "." || s == ".." || len(s) > 15 {
			return "want " + want
		}
		return ""
	})
}
