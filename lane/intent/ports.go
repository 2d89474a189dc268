// SPDX-License-Identifier: Apache-2.0

package intent

// FewPorts is the longest list of ports in which Blocks makes one block of each port. In a longer
// list, it combines ranges of ports into larger blocks.
const FewPorts = 1024

// A PortBlock is the set of ports whose first Bits bits equal those of Port. With Bits 16
// it is one port.
type PortBlock struct {
	Port uint16
	Bits int
}

// blockBits are the possible values of PortBlock.Bits, largest blocks first. A BPF program looks
// up each packet once for each value that a file uses. With these four values, one range of ports
// becomes at most 90 blocks.
var blockBits = [...]int{4, 8, 12, 16}

// Blocks divides an ascending list of ports into blocks.
func Blocks(ports []uint16) []PortBlock {
	if len(ports) <= FewPorts {
		out := make([]PortBlock, len(ports))
		for i, p := range ports {
			out[i] = PortBlock{p, 16}
		}
		return out
	}
	var out []PortBlock
	for i := 0; i < len(ports); {
		end := i + 1 // ports[i:end] is a range without gaps
		for end < len(ports) && ports[end] == ports[end-1]+1 {
			end++
		}
		for i < end {
			for _, bits := range blockBits {
				if size := 1 << (16 - bits); int(ports[i])%size == 0 && size <= end-i {
					out = append(out, PortBlock{ports[i], bits})
					i += size
					break
				}
			}
		}
	}
	return out
}
