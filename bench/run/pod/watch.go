// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// watchAgain is the pause before the next watch. The API server ends each watch after some time.
const watchAgain = time.Second

// watch follows the pod until ctx or the pod ends.
func (p *Pod) watch(ctx context.Context) {
	defer close(p.watched)
	for {
		err := p.follow(ctx)
		if ctx.Err() != nil || p.Ended() != nil {
			return
		}
		if err != nil && strings.Contains(err.Error(), "NotFound") {
			p.finish(errors.New("it was deleted"))
			return
		}
		p.mu.Lock()
		p.trouble = err
		p.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-time.After(watchAgain):
		}
	}
}

// follow reads one watch to its end.
func (p *Pod) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := p.k.command(ctx, p.of("get", "pod", p.name, "--watch", "--output-watch-events", "--output=json")...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return called(ctx, "get", err)
	}
	for d := json.NewDecoder(out); ; {
		var event struct {
			Type   string `json:"type"`
			Object object `json:"object"`
		}
		if err := d.Decode(&event); err != nil {
			if !errors.Is(err, io.EOF) && ctx.Err() == nil {
				cancel()
			}
			break
		}
		if p.saw(event.Type, event.Object) {
			cancel()
			break
		}
	}
	if err := cmd.Wait(); err != nil && said.Len() > 0 {
		return fmt.Errorf("kubectl get: %s", lastLine(said.Bytes()))
	} else if err != nil {
		return called(ctx, "get", err)
	}
	return nil
}

// saw handles an event of the watch, and reports whether the pod has ended.
func (p *Pod) saw(kind string, o object) bool {
	deleted := kind == "DELETED"
	if o.Metadata.Name != p.name && !deleted {
		return false // an object of kind Status, or an event of an unknown type
	}
	p.mu.Lock()
	if !deleted {
		p.last = o
	}
	p.trouble = nil
	close(p.changed)
	p.changed = make(chan struct{})
	p.mu.Unlock()
	switch {
	case deleted:
		p.finish(errors.New("it was deleted"))
	case o.Metadata.DeletionTimestamp != "":
		p.finish(errors.New("it is being deleted"))
	case o.over():
		p.finish(errors.New("it has ended"))
	default:
		return false
	}
	return true
}

// finish records that the pod has ended.
func (p *Pod) finish(how error) {
	p.end = p.because(how)
	close(p.done)
}

// because adds to an error the pod's name and state, and the last event about it.
func (p *Pod) because(err error) error {
	p.mu.Lock()
	how, uid, trouble := p.last.how(), p.last.Metadata.UID, p.trouble
	p.mu.Unlock()
	text := fmt.Sprintf("%s: %v: %s", p.Name(), err, how)
	if event := p.lastEvent(uid); event != "" {
		text += "; its last event: " + event
	}
	if trouble != nil {
		text += fmt.Sprintf("; it cannot be watched: %v", trouble)
	}
	return errors.New(text)
}

// An event is an Event of core/v1. Older and newer components of Kubernetes set different time fields.
type event struct {
	Reason         string `json:"reason"`
	Message        string `json:"message"`
	LastTimestamp  string `json:"lastTimestamp"`
	EventTime      string `json:"eventTime"`
	FirstTimestamp string `json:"firstTimestamp"`
	Series         *struct {
		LastObservedTime string `json:"lastObservedTime"`
	} `json:"series"`
}

func (e event) at() string {
	at := cmp.Or(e.LastTimestamp, e.EventTime, e.FirstTimestamp)
	if e.Series != nil {
		at = max(at, e.Series.LastObservedTime)
	}
	return at // RFC 3339 in UTC: texts and times have the same order
}

// lastEvent returns the last event about the pod, "" if there is none or it cannot be read. It
// does not use the run's context, which may have ended.
func (p *Pod) lastEvent(uid string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := p.k.run(ctx, nil, p.of("get", "events", "--field-selector=involvedObject.uid="+uid, "--output=json")...)
	var list struct {
		Items []event `json:"items"`
	}
	if err != nil || json.Unmarshal(out, &list) != nil {
		return ""
	}
	last, text := "", ""
	for _, e := range list.Items {
		if at := e.at(); text == "" || at >= last {
			last, text = at, e.Reason+": "+strings.TrimSpace(e.Message)
		}
	}
	return text
}
