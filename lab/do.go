// SPDX-License-Identifier: Apache-2.0

package lab

// Do runs f on a thread of its own in a host's network namespace, with a /sys that shows the
// host's devices. Sockets that f opens stay on the host after f has returned.
func (l *Lab) Do(host string, f func() error) error {
	n, err := openNode(l.Config, host)
	if err != nil {
		return err
	}
	defer n.close()
	return n.do(f)
}
