// SPDX-License-Identifier: Apache-2.0

package lab

// Do runs f on a thread of its own that is on a host: in its network namespace,
// with a /sys that shows its devices. Sockets that f opens stay on the host
// when f has returned.
func (l *Lab) Do(host string, f func() error) error {
	n, err := openNode(l.Config, host)
	if err != nil {
		return err
	}
	defer n.close()
	return n.do(f)
}
