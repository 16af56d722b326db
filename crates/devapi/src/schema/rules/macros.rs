//! `all` and `exists` with an index: `list.all(i, v, …)`.

use cel::common::ast::{CallExpr, ComprehensionExpr, Expr, IdedExpr, ListExpr, LiteralValue, operators};
use cel::parser::{Macro, MacroExprHelper, ParseError};

/// The macros, for the environment of rules.
pub(super) fn indexed() -> [Macro; 2] {
    [
        Macro::receiver("all", 3, |helper, target, args| expand(helper, target, args, true)),
        Macro::receiver("exists", 3, |helper, target, args| expand(helper, target, args, false)),
    ]
}

/// `L.all(i, v, body)` is `lists.range(size(L)).all(i, [L[i]].all(v, body))`.
fn expand(
    helper: &mut MacroExprHelper<'_>,
    target: &mut Option<IdedExpr>,
    args: &mut Vec<IdedExpr>,
    every: bool,
) -> Result<Option<IdedExpr>, ParseError> {
    let names = args.iter().filter_map(|arg| match &arg.expr {
        Expr::Ident(name) => Some(name.clone()),
        _ => None,
    });
    let names: Vec<String> = names.take(2).collect();
    let ([index, item], Some(list)) = (&names[..], target.take()) else { return Ok(None) };
    let Some(body) = args.pop() else { return Ok(None) };
    let at = helper.next_expr(Expr::Ident(index.clone()));
    let element = call(helper, operators::INDEX, vec![list.clone(), at]);
    let single =
        helper.next_expr(Expr::List(ListExpr { elements: vec![element], optional_indices: Vec::new() }));
    let inner = over(helper, single, item, body, every);
    let size = call(helper, "size", vec![list]);
    let lists = helper.next_expr(Expr::Ident("lists".to_owned()));
    let range = helper.next_expr(Expr::Call(CallExpr {
        func_name: "range".to_owned(),
        target: Some(Box::new(lists)),
        args: vec![size],
    }));
    Ok(Some(over(helper, range, index, inner, every)))
}

fn call(helper: &mut MacroExprHelper<'_>, name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    helper.next_expr(Expr::Call(CallExpr { func_name: name.to_owned(), target: None, args }))
}

/// Whether `body` holds for every, or for some, value of `range`.
fn over(
    helper: &mut MacroExprHelper<'_>,
    range: IdedExpr,
    variable: &str,
    body: IdedExpr,
    every: bool,
) -> IdedExpr {
    const RESULT: &str = "@result";
    let result = |helper: &mut MacroExprHelper<'_>| helper.next_expr(Expr::Ident(RESULT.to_owned()));
    let init = helper.next_expr(Expr::Literal(LiteralValue::Boolean(every.into())));
    let so_far = result(helper);
    let undecided = if every { so_far } else { call(helper, operators::LOGICAL_NOT, vec![so_far]) };
    let condition = call(helper, operators::NOT_STRICTLY_FALSE, vec![undecided]);
    let so_far = result(helper);
    let join = if every { operators::LOGICAL_AND } else { operators::LOGICAL_OR };
    let step = call(helper, join, vec![so_far, body]);
    let last = result(helper);
    helper.next_expr(Expr::Comprehension(Box::new(ComprehensionExpr {
        iter_range: range,
        iter_var: variable.to_owned(),
        iter_var2: None,
        accu_var: RESULT.to_owned(),
        accu_init: init,
        loop_cond: condition,
        loop_step: step,
        result: last,
    })))
}
