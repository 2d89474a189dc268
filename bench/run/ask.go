// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"fmt"
	"time"
)

// until asks a server again and again until it answers, patience has passed, or down reports that
// the server has ended. what is the server's name in the error.
func until(ctx context.Context, what string, ask func(context.Context) error, patience time.Duration,
	down func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		if gone := down(); gone != nil {
			return gone
		}
		if wait(ctx, 20*time.Millisecond) != nil {
			return fmt.Errorf("%s does not answer within %v: %w", what, patience, err)
		}
	}
}
