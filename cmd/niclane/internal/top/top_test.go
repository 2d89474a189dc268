// SPDX-License-Identifier: Apache-2.0

package top

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/gdamore/tcell/v2"

	"github.com/niclane/niclane/lane/status"
)

// frame returns a frame with two lanes of 14 queues each.
func frame() Frame {
	f := Frame{Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	for _, lane := range []string{"default", "web"} {
		f.Rows = append(f.Rows, status.Row{Device: "d0", Lane: lane, What: "lane", Number: -1,
			Rx: &status.Rate{Packets: 1234567, Bytes: 125e6, Drops: 0}})
		for q := range 14 {
			f.Rows = append(f.Rows, status.Row{Device: "d0", Lane: lane, What: "queue", Number: q,
				Rx:         &status.Rate{Packets: float64(q), Drops: float64(q % 2)},
				Interrupts: new(1500.0), Poller: &status.Poller{PID: 77, Doing: "asleep", State: "S", CPU: 0.25,
					Polls: new(12000.0), Voluntary: 3, Involuntary: 2}})
		}
	}
	return f
}

// terminal is a screen in memory with a simulated user.
type terminal struct {
	tcell.SimulationScreen
	t      *testing.T
	frames chan Frame
	ended  chan struct{}
	cancel context.CancelFunc
}

func begin(t *testing.T, width, height int) *terminal {
	t.Helper()
	s := tcell.NewSimulationScreen("UTF-8")
	if err := s.Init(); err != nil {
		t.Fatal(err)
	}
	s.SetSize(width, height)
	ctx, cancel := context.WithCancel(t.Context())
	x := &terminal{s, t, make(chan Frame), make(chan struct{}), cancel}
	go func() {
		Run(ctx, s, time.Second, x.frames)
		close(x.ended)
	}()
	t.Cleanup(func() { cancel(); <-x.ended })
	return x
}

func (x *terminal) text() string {
	cells, width, _ := x.GetContents()
	var b strings.Builder
	for i, c := range cells {
		if i > 0 && i%width == 0 {
			b.WriteByte('\n')
		}
		b.WriteString(string(c.Runes))
	}
	return b.String()
}

// until waits for a text on the screen.
func (x *terminal) until(want string) {
	x.t.Helper()
	for end := time.Now().Add(20 * time.Second); !strings.Contains(x.text(), want); {
		if time.Now().After(end) {
			x.t.Fatalf("no %q on\n%s", want, x.text())
		}
	}
}

// without waits until a text is not on the screen.
func (x *terminal) without(text string) {
	x.t.Helper()
	for end := time.Now().Add(20 * time.Second); strings.Contains(x.text(), text); {
		if time.Now().After(end) {
			x.t.Fatalf("%q is still on\n%s", text, x.text())
		}
	}
}

func (x *terminal) typed(key tcell.Key, r rune) { x.InjectKey(key, r, tcell.ModNone) }

// TestNarrow: on a terminal of 80x24, one half of the columns is shown at a time, and every row can
// be reached by scrolling.
func TestNarrow(t *testing.T) {
	x := begin(t, 80, 24)
	x.frames <- frame()
	x.until("queue 13")
	x.until("03:04:05, rows 1 to 21 of 30")
	for _, want := range []string{"d0 default", "1.23M", "1G", "RX BIT/S", "TX/S", "DROPS/S", "q quit", "Tab polling"} {
		x.until(want)
	}
	for _, line := range strings.Split(x.text(), "\n") {
		if n := len([]rune(line)); n != 80 {
			t.Errorf("%d cells: %q", n, line)
		}
	}
	x.typed(tcell.KeyTab, 0)
	for _, want := range []string{"poller 77 asleep", "1.5k", "12k", "25%", "SWITCH/S", "5.0", "Tab traffic"} {
		x.until(want)
	}
	x.typed(tcell.KeyEnd, 0)
	x.until("rows 10 to 30 of 30")
	x.typed(tcell.KeyUp, 0)
	x.until("rows 9 to 29 of 30")
	x.typed(tcell.KeyHome, 0)
	x.until("rows 1 to 21")
	x.typed(tcell.KeyRune, 'l')
	x.until("d0 web")
	x.without("queue")
}

func TestWide(t *testing.T) {
	x := begin(t, 140, 40)
	x.frames <- frame()
	for _, want := range []string{"RX BIT/S", "poller 77 asleep", "SWITCH/S"} {
		x.until(want)
	}
	x.without("Tab")
	x.SetSize(80, 10)
	_ = x.PostEvent(tcell.NewEventResize(80, 10)) // it fails only if the queue is full, and then such an event is in it
	x.until("rows 1 to 7 of 30")
}

// TestTiny: top works even if the terminal is too small to show anything.
func TestTiny(t *testing.T) {
	for _, size := range [][2]int{{1, 1}, {10, 2}, {3, 3}} {
		x := begin(t, size[0], size[1])
		x.frames <- frame()
		x.frames <- frame() // Run takes this frame only after it has drawn the first
	}
}

func TestPause(t *testing.T) {
	x := begin(t, 80, 24)
	f := frame()
	x.frames <- f
	x.until("d0 web")
	x.typed(tcell.KeyRune, 'p')
	x.until("paused")
	f.Time = f.Time.Add(time.Second)
	x.frames <- f
	x.frames <- f
	if !strings.Contains(x.text(), "03:04:05") {
		t.Errorf("paused, but\n%s", x.text())
	}
	x.typed(tcell.KeyRune, ' ')
	for strings.Contains(x.text(), "paused") {
		select {
		case x.frames <- f:
		case <-time.After(20 * time.Second):
			t.Fatal("still paused")
		}
	}
	x.frames <- f
	x.until("03:04:06")
	f.Notice = "no lanes are applied here"
	x.frames <- f
	x.until("no lanes are applied here")
}

// TestQuit: each way to quit works.
func TestQuit(t *testing.T) {
	for name, quit := range map[string]func(*terminal){
		"q":      func(x *terminal) { x.typed(tcell.KeyRune, 'q') },
		"escape": func(x *terminal) { x.typed(tcell.KeyEscape, 0) },
		"ctrl-c": func(x *terminal) { x.typed(tcell.KeyCtrlC, 0) },
		"signal": func(x *terminal) { x.cancel() },
		"frames": func(x *terminal) { close(x.frames) },
	} {
		t.Run(name, func(t *testing.T) {
			x := begin(t, 80, 24)
			quit(x)
			select {
			case <-x.ended:
			case <-time.After(20 * time.Second):
				t.Error("it goes on")
			}
		})
	}
}

func TestShort(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.04: "0.0", 3.25: "3.2", 10: "10", 999.4: "999", 999.6: "1k",
		12345: "12.3k", 1e6: "1M", 2.5e9: "2.5G", 1e16: "10000T"} {
		if got := short(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
	if got := cut("ein-sehr-langer-Name", 8); got != "ein-seh…" {
		t.Errorf("cut: %q", got)
	}
}
