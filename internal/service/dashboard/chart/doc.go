// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package chart owns the drawing of time series as SVG: scales and their ticks, paths, and the
// table with the same values.
//
// What comes in: values of equal steps of time, NaN where there are none. Whom it hands over to:
// the dashboard, whose style sheet colours the classes. All functions are pure: the same values
// give the same bytes. Drawings are as wide as their place, and their text keeps its size: the
// axes are placed by percentages, and only the lines are stretched.
package chart
