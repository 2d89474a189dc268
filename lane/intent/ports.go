// SPDX-License-Identifier: Apache-2.0

package intent

// FewPorts is the longest list of ports that is compared port by port. The
// ranges of a longer list are compared block by block.
const FewPorts = 1024

// A PortBlock is the set of ports whose first Bits bits equal those of Port. With Bits 16
// it is one port.
type PortBlock struct {
	Port uint16
	Bits int
}

// blockBits are the possible lengths of blocks, shortest first. A packet is looked up once
// for each length that a file uses. With four lengths, one range becomes at most 90 blocks.
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
		end := i + 1 // the run begins at i
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
