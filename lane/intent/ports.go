// SPDX-License-Identifier: Apache-2.0

package intent

// FewPorts is how many ports a list may have for each of them to be compared as a
// whole. Ranges of longer lists are compared block by block.
const FewPorts = 1024

// A PortBlock is the ports that have the first Bits bits of Port in common; of Bits
// 16 it is one port.
type PortBlock struct {
	Port uint16
	Bits int
}

// blockBits are the lengths that blocks have, shortest first: a packet is looked up
// once for each length that a file uses. Four lengths make at most 90 blocks of a
// range.
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
		end := i + 1 // of the run that begins at i
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
