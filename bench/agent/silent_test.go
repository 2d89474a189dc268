// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net"
	"testing"
)

// TestSilentClients: any number of silent connections neither keeps an orchestrator out nor
// ends a session.
func TestSilentClients(t *testing.T) {
	first, _ := started(t, nil)
	silent := func() net.Conn {
		c, err := net.Dial("tcp", first.dial.Address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	oldest := silent()
	for range maxStrangers {
		silent()
	}
	if n, err := oldest.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("the oldest that is silent: read %d, %v, want its end", n, err)
	}
	if _, err := first.Offset(t.Context()); err != nil {
		t.Errorf("the session that was there: %v", err)
	}
	if err := first.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := open(t, first.dial).Close(t.Context()); err != nil {
		t.Errorf("another beside them: %v", err)
	}
}
