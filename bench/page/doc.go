// SPDX-License-Identifier: Apache-2.0

// Package page writes the HTML page of a result: one file that needs no network and no script.
//
// It shows what package result derives from a result and computes no number of its own. A figure
// that the sample cannot support is not drawn: the page says what is missing. A table next to each
// figure has the figure's values. Figures are SVG. If a phone needs other proportions than a
// desktop, a figure is drawn twice. Colours come from the page's CSS, so they follow light and dark
// mode.
package page
