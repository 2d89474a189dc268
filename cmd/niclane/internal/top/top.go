// SPDX-License-Identifier: Apache-2.0

// Package top shows the rates of lanes on a terminal, live. It draws frames that the caller gives
// it, and reads keys. It restores the terminal in every case.
package top

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/gdamore/tcell/v2"

	"github.com/niclane/niclane/lane/status"
)

// A Frame is the content of one screen.
type Frame struct {
	Time time.Time
	Rows []status.Row
	// Notice is a message above the rows. If there are no rows, it says why.
	Notice string
}

// Open takes over the terminal of this process.
func Open() (tcell.Screen, error) {
	s, err := tcell.NewScreen()
	if err == nil {
		err = s.Init()
	}
	if err != nil {
		return nil, fmt.Errorf("no terminal, or one of unknown type (TERM=%s): %w", os.Getenv("TERM"), err)
	}
	return s, nil
}

// Run shows frames on s until the user quits, or until ctx or the frames end. It then restores
// the terminal.
func Run(ctx context.Context, s tcell.Screen, interval time.Duration, frames <-chan Frame) {
	defer s.Fini()
	s.HideCursor()
	keys := make(chan tcell.Event, 8)
	done := make(chan struct{})
	defer close(done)
	go s.ChannelEvents(keys, done)
	v := &view{screen: s, interval: interval}
	v.draw()
	for {
		select {
		case <-ctx.Done():
			return
		case f, ok := <-frames:
			if !ok {
				return
			}
			if !v.paused {
				v.frame = f
			}
		case e, ok := <-keys:
			if !ok || v.handle(e) {
				return
			}
		}
		v.draw()
	}
}

// A view is what one screen shows: the present frame, and the user's choices.
type view struct {
	screen   tcell.Screen
	interval time.Duration
	frame    Frame
	paused   bool
	lanes    bool // lanes only, without queues
	polling  bool // shows the polling columns, not the traffic columns, if only one half fits
	first    int  // index of the top row
}

// handle handles an event and reports whether to quit.
func (v *view) handle(e tcell.Event) (quit bool) {
	switch e := e.(type) {
	case *tcell.EventResize:
		v.screen.Sync()
	case *tcell.EventKey:
		return v.key(e)
	}
	return false
}

func (v *view) key(e *tcell.EventKey) (quit bool) {
	_, height := v.screen.Size()
	switch e.Key() {
	case tcell.KeyCtrlC, tcell.KeyEscape:
		return true
	case tcell.KeyUp:
		v.first--
	case tcell.KeyDown:
		v.first++
	case tcell.KeyPgUp:
		v.first -= max(1, height-frameLines)
	case tcell.KeyPgDn:
		v.first += max(1, height-frameLines)
	case tcell.KeyHome:
		v.first = 0
	case tcell.KeyEnd:
		v.first = len(v.frame.Rows)
	case tcell.KeyTab:
		v.polling = !v.polling
	case tcell.KeyRune:
		switch e.Rune() {
		case 'q', 'Q':
			return true
		case 'p', ' ':
			v.paused = !v.paused
		case 'l':
			v.lanes, v.first = !v.lanes, 0
		case 'k':
			v.first--
		case 'j':
			v.first++
		}
	}
	return false
}
