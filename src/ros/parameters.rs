//! The ROS parameters of the node, over [`Params`].
//!
//! The six parameter services are answered here instead of by r2r's handler: that one accepts
//! unknown names from files, knows neither ranges nor read-only parameters, sets "atomically" one
//! by one, and panics when a client has gone away.

use super::clean;
use crate::params::{is_ros_own, ParamError, Params, Range, Spec, Value};
use futures::{Stream, StreamExt};
use r2r::indexmap::IndexMap;
use r2r::rcl_interfaces::msg::{
    FloatingPointRange, IntegerRange, ListParametersResult, Parameter as ParameterMsg, ParameterDescriptor,
    ParameterEvent, ParameterType, ParameterValue as ValueMsg, SetParametersResult,
};
use r2r::rcl_interfaces::srv::{
    DescribeParameters, GetParameterTypes, GetParameters, ListParameters, SetParameters,
    SetParametersAtomically,
};
use r2r::{Node, ParameterValue, Publisher, QosProfile, ServiceRequest, WrappedServiceTypeSupport};
use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;

const BOOL: u8 = ParameterType::PARAMETER_BOOL as u8;
const INTEGER: u8 = ParameterType::PARAMETER_INTEGER as u8;
const DOUBLE: u8 = ParameterType::PARAMETER_DOUBLE as u8;
const STRING: u8 = ParameterType::PARAMETER_STRING as u8;

/// The parameter that ROS itself reads and that may be changed while the node runs.
const USE_SIM_TIME: &str = "use_sim_time";

/// Reads the parameters given on the command line and in files: unknown names, wrong types and
/// values out of range are errors, and nothing is taken half.
pub fn from_overrides(overrides: &IndexMap<String, r2r::Parameter>) -> Result<(Params, bool), ParamError> {
    let mut values = Vec::new();
    let mut sim_time = false;
    for (name, parameter) in overrides {
        if name == USE_SIM_TIME {
            match parameter.value {
                ParameterValue::Bool(on) => sim_time = on,
                ref other => {
                    let got = format!("{} {other:?}", other.type_name());
                    return Err(ParamError::Type { name: USE_SIM_TIME, expected: "bool", got });
                }
            }
        } else if !is_ros_own(name) {
            let spec = Params::spec(name)?;
            let value = match &parameter.value {
                ParameterValue::Bool(v) => Value::Bool(*v),
                ParameterValue::Integer(v) => Value::Int(*v),
                ParameterValue::Double(v) => Value::Float(*v),
                ParameterValue::String(v) => Value::Text(v.clone()),
                other => {
                    let got = other.type_name().to_owned();
                    return Err(ParamError::NotSingle { name: spec.name, got });
                }
            };
            values.push((spec.name, value));
        }
    }
    let mut params = Params::default();
    params.set_all(values.iter().map(|(n, v)| (*n, v)))?;
    Ok((params, sim_time))
}

/// What the parameter services read and change.
pub struct Parameters {
    params: Params,
    sim_time: bool,
    changed: bool,
    events: Publisher<ParameterEvent>,
    node: String,
    clock: super::NodeClock,
}

impl Parameters {
    /// Makes the parameters visible and settable: adds the services to the node. The futures answer
    /// them and must be polled.
    pub fn serve(
        node: &mut Node,
        params: Params,
        sim_time: bool,
    ) -> r2r::Result<(Rc<RefCell<Self>>, Vec<impl Future<Output = ()> + 'static>)> {
        let shared = Rc::new(RefCell::new(Self {
            params,
            sim_time,
            changed: false,
            events: node.create_publisher("/parameter_events", QosProfile::parameter_events())?,
            node: node.fully_qualified_name()?,
            clock: super::NodeClock::of(node),
        }));
        let tasks: Vec<std::pin::Pin<Box<dyn Future<Output = ()>>>> = vec![
            Box::pin(answer(
                stream::<GetParameters::Service>(node, "get_parameters")?,
                shared.clone(),
                Self::get,
            )),
            Box::pin(answer(
                stream::<SetParameters::Service>(node, "set_parameters")?,
                shared.clone(),
                Self::set,
            )),
            Box::pin(answer(
                stream::<SetParametersAtomically::Service>(node, "set_parameters_atomically")?,
                shared.clone(),
                Self::set_atomically,
            )),
            Box::pin(answer(
                stream::<ListParameters::Service>(node, "list_parameters")?,
                shared.clone(),
                Self::list,
            )),
            Box::pin(answer(
                stream::<DescribeParameters::Service>(node, "describe_parameters")?,
                shared.clone(),
                Self::describe,
            )),
            Box::pin(answer(
                stream::<GetParameterTypes::Service>(node, "get_parameter_types")?,
                shared.clone(),
                Self::types,
            )),
        ];
        Ok((shared, tasks))
    }

    /// The values, if a service changed them since the last call.
    pub fn take_changed(&mut self) -> Option<Params> {
        std::mem::take(&mut self.changed).then(|| self.params.clone())
    }

    /// The value of `use_sim_time`.
    pub fn sim_time(&self) -> bool {
        self.sim_time
    }

    fn value(&self, name: &str) -> ValueMsg {
        if name == USE_SIM_TIME {
            return to_msg(&Value::Bool(self.sim_time));
        }
        self.params.get(name).map(|v| to_msg(&v)).unwrap_or_default()
    }

    fn get(&mut self, request: &GetParameters::Request) -> GetParameters::Response {
        GetParameters::Response { values: request.names.iter().map(|n| self.value(n)).collect() }
    }

    fn types(&mut self, request: &GetParameterTypes::Request) -> GetParameterTypes::Response {
        GetParameterTypes::Response { types: request.names.iter().map(|n| self.value(n).type_).collect() }
    }

    fn list(&mut self, request: &ListParameters::Request) -> ListParameters::Response {
        let mut result = ListParametersResult::default();
        let within = |rest: &str| request.depth == 0 || (rest.matches('.').count() as u64) < request.depth;
        for name in Params::specs().iter().map(|s| s.name).chain([USE_SIM_TIME]) {
            let wanted = match request.prefixes.as_slice() {
                [] => within(name),
                prefixes => prefixes.iter().any(|prefix| match name.strip_prefix(prefix.as_str()) {
                    Some("") => true,
                    Some(rest) => rest.strip_prefix('.').is_some_and(within),
                    None => false,
                }),
            };
            if wanted {
                result.names.push(name.to_owned());
                if let Some((group, _)) = name.rsplit_once('.') {
                    if result.prefixes.last().is_none_or(|p| p != group) {
                        result.prefixes.push(group.to_owned());
                    }
                }
            }
        }
        ListParameters::Response { result }
    }

    fn describe(&mut self, request: &DescribeParameters::Request) -> DescribeParameters::Response {
        let one = |name: &String| {
            let type_ = self.value(name).type_;
            match Params::spec(name) {
                Ok(spec) => descriptor(spec, type_),
                Err(_) => ParameterDescriptor { name: clean(name), type_, ..Default::default() },
            }
        };
        DescribeParameters::Response { descriptors: request.names.iter().map(one).collect() }
    }

    fn set(&mut self, request: &SetParameters::Request) -> SetParameters::Response {
        let one = |p: &ParameterMsg| self.change(std::slice::from_ref(p));
        SetParameters::Response { results: request.parameters.iter().map(one).collect() }
    }

    fn set_atomically(
        &mut self,
        request: &SetParametersAtomically::Request,
    ) -> SetParametersAtomically::Response {
        SetParametersAtomically::Response { result: self.change(&request.parameters) }
    }

    /// Sets all of them or none.
    fn change(&mut self, wanted: &[ParameterMsg]) -> SetParametersResult {
        match self.try_change(wanted) {
            Ok(()) => SetParametersResult { successful: true, reason: String::new() },
            Err(error) => SetParametersResult { successful: false, reason: clean(&error.to_string()) },
        }
    }

    fn try_change(&mut self, wanted: &[ParameterMsg]) -> Result<(), ParamError> {
        let mut sim_time = self.sim_time;
        let mut values = Vec::with_capacity(wanted.len());
        for parameter in wanted {
            let value = from_msg(&parameter.value);
            if parameter.name == USE_SIM_TIME {
                match value {
                    Some(Value::Bool(on)) => sim_time = on,
                    _ => {
                        let got = "something else".to_owned();
                        return Err(ParamError::Type { name: USE_SIM_TIME, expected: "bool", got });
                    }
                }
                continue;
            }
            let spec = Params::spec(&parameter.name)?;
            match value {
                Some(value) => values.push((spec.name, value)),
                None => {
                    let got = "a list or nothing".to_owned();
                    return Err(ParamError::NotSingle { name: spec.name, got });
                }
            }
        }
        self.params.set_live_all(values.iter().map(|(n, v)| (*n, v)))?;
        self.sim_time = sim_time;
        self.changed |= !values.is_empty();
        self.announce(wanted);
        Ok(())
    }

    /// Tells `/parameter_events`, with the values as they are now.
    fn announce(&self, changed: &[ParameterMsg]) {
        let event = ParameterEvent {
            stamp: super::time(self.clock.now()),
            node: self.node.clone(),
            changed_parameters: changed
                .iter()
                .map(|p| ParameterMsg { name: clean(&p.name), value: self.value(&p.name) })
                .collect(),
            ..Default::default()
        };
        if let Err(error) = self.events.publish(&event) {
            log::warn!("cannot publish a parameter event: {error}");
        }
    }
}

fn stream<S: WrappedServiceTypeSupport + 'static>(
    node: &mut Node,
    name: &str,
) -> r2r::Result<impl Stream<Item = ServiceRequest<S>> + Unpin> {
    node.create_service::<S>(&format!("~/{name}"), QosProfile::parameters())
}

/// Answers requests one by one. A client that has gone away is no error of the node.
async fn answer<S: WrappedServiceTypeSupport + 'static>(
    mut requests: impl Stream<Item = ServiceRequest<S>> + Unpin,
    shared: Rc<RefCell<Parameters>>,
    respond: impl Fn(&mut Parameters, &S::Request) -> S::Response,
) {
    while let Some(request) = requests.next().await {
        let response = respond(&mut shared.borrow_mut(), &request.message);
        if let Err(error) = request.respond(response) {
            log::warn!("a parameter request could not be answered: {error}");
        }
    }
}

fn descriptor(spec: &Spec, type_: u8) -> ParameterDescriptor {
    let unit = if spec.unit.is_empty() { String::new() } else { format!(" [{}]", spec.unit) };
    let mut out = ParameterDescriptor {
        name: spec.name.to_owned(),
        type_,
        description: format!("{}{unit}", spec.doc.trim()),
        additional_constraints: spec.range.to_string(),
        read_only: !spec.live,
        ..Default::default()
    };
    if let Range::Within(low, high) = spec.range {
        if type_ == INTEGER {
            let (from_value, to_value) = (low as i64, high as i64);
            out.integer_range = vec![IntegerRange { from_value, to_value, step: 1 }];
        } else {
            let range = FloatingPointRange { from_value: low, to_value: high, step: 0.0 };
            out.floating_point_range = vec![range];
        }
    }
    out
}

fn to_msg(value: &Value) -> ValueMsg {
    let mut out = ValueMsg::default();
    out.type_ = match value {
        Value::Bool(v) => {
            out.bool_value = *v;
            BOOL
        }
        Value::Int(v) => {
            out.integer_value = *v;
            INTEGER
        }
        Value::Float(v) => {
            out.double_value = *v;
            DOUBLE
        }
        Value::Text(v) => {
            out.string_value = clean(v);
            STRING
        }
    };
    out
}

fn from_msg(message: &ValueMsg) -> Option<Value> {
    Some(match message.type_ {
        BOOL => Value::Bool(message.bool_value),
        INTEGER => Value::Int(message.integer_value),
        DOUBLE => Value::Float(message.double_value),
        STRING => Value::Text(message.string_value.clone()),
        _ => return None,
    })
}
