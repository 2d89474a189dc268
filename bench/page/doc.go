// SPDX-License-Identifier: Apache-2.0

// Package page writes the HTML page of a result: one file that needs nothing
// else, neither a network nor a script.
//
// It shows what package result says of a result and computes no number of its
// own. What the sample does not carry stands as refused, with what is missing,
// and is never drawn. Each figure has its values in a table beside it. Figures
// are SVG, drawn twice where a phone's width needs other proportions; colours
// are the page's own, so that they follow light and dark.
package page
