// SPDX-License-Identifier: Apache-2.0

package lab

// Do runs f on a new thread in the network namespace of a host. There, /sys shows the host's
// devices. Sockets that f opens belong to the host even after f has returned.
func (l *Lab) Do(host string, f func() error) error {
	n, err := openNode(l.Config, host)
	if err != nil {
		return err
	}
	defer n.close()
	return n.do(f)
}
