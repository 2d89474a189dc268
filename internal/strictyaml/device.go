// SPDX-License-Identifier: Apache-2.0

package strictyaml

import "fmt"

// NetworkDevice returns the kind of an interface's name, as the kernel's dev_valid_name()
// defines it.
func NetworkDevice() Kind[string] {
	return deviceName("the name of a network device, 1 to 15 characters", 15)
}

// AnyNetworkDevice returns the kind of an interface's name or alternative name (ip link
// property; ALTIFNAMSIZ of linux/if.h).
func AnyNetworkDevice() Kind[string] {
	return deviceName("a name of a network device, 1 to 15 characters, alternative ones up to 127", 127)
}

func deviceName(want string, length int) Kind[string] {
	return Pattern(want, fmt.Sprintf(`^[^\s/:]{1,%d}$`, length), func(s string) string {
		if s == "." || s == ".." || len(s) > length {
			return "want " + want
		}
		return ""
	})
}
